// The layers of a step of one or two rows, whose matrices run as chains: what lies between two
// layers' attentions is one launch.
#include <algorithm>

#include "models/dense_decoder_cuda.h"

namespace octet {

namespace {

bool takes_layer(const DenseLayerCuda& layer) {
  // A branch that is normed before it is added is not added where it is computed.
  if (layer.post_attention_norm != nullptr || layer.post_feed_forward_norm != nullptr) return false;
  const DeviceMatrix* matrices[] = {layer.query_key_value, layer.attention_output, layer.gate_up,
                                    layer.down};
  return std::all_of(std::begin(matrices), std::end(matrices), [&](const DeviceMatrix* matrix) {
    return linear_chain_takes(*matrix) &&
           matrix->parts[0].dtype == layer.query_key_value->parts[0].dtype;
  });
}

}  // namespace

void DenseDecoderCuda::allow_chains(bool allowed) {
  bindings_.clear();  // whose graphs hold the one or the other
  chains_enabled_ = allowed && chain_workspace_.supported();
  for (int layer = 0; layer < config_.layers && chains_enabled_; ++layer) {
    chains_enabled_ =
        takes_layer(weights_.layer(layer)) &&
        weights_.layer(layer).down->parts[0].dtype == weights_.layer(0).down->parts[0].dtype &&
        config_.intermediate_size % 8 == 0;
  }
}

bool DenseDecoderCuda::runs_chains(const StepInputs& inputs) const {
  return chains_enabled_ && inputs.sizes.rows <= linear_chain_most_rows &&
         inputs.sizes.rows == inputs.sizes.sequences;
}

bool DenseDecoderCuda::runs_chained_logits(const StepInputs& inputs) const {
  return runs_chains(inputs) && inputs.wants_every_row && linear_chain_takes(weights_.output());
}

// Of every row, with the norm before.
void DenseDecoderCuda::compute_chained_logits(const StepInputs& inputs) {
  LinearChainStep step;
  step.weight = &weights_.output();
  step.input = ChainInput::normed_residual;
  step.norm = weights_.output_norm();
  step.output = ChainOutput::float32;
  step.y = activations_.logits.data();
  run_chain({&step, 1}, inputs.sizes.rows);
}

void DenseDecoderCuda::run_chain(std::span<const LinearChainStep> steps, std::int64_t rows) {
  LinearChainArgs args;
  args.steps = steps;
  args.rows = static_cast<int>(rows);
  args.residual = activations_.residual.data();
  args.width = config_.hidden_size;
  args.epsilon = config_.norm_epsilon;
  args.activation = config_.activation;
  linear_chain_cuda(launch(), chain_workspace_, args);
}

void DenseDecoderCuda::enqueue_chained_layers(CacheBindingCuda& cache, const StepInputs& inputs) {
  const std::int64_t rows = inputs.sizes.rows;
  Activations& a = activations_;
  const auto query_key_value = [&](int layer) {
    const DenseLayerCuda& weights = weights_.layer(layer);
    LinearChainStep step;
    step.weight = weights.query_key_value;
    step.input = ChainInput::normed_residual;
    step.norm = weights.attention_norm;
    step.output = ChainOutput::float32;
    step.bias = weights.query_key_value_bias;
    step.y = a.query_key_value.data();
    return step;
  };
  const LinearChainStep first = query_key_value(0);
  run_chain({&first, 1}, rows);
  seen("query, key, value", {first.weight}, rows);
  for (int layer = 0; layer < config_.layers; ++layer) {
    attend(cache, inputs, layer);
    const DenseLayerCuda& weights = weights_.layer(layer);
    LinearChainStep steps[linear_chain_most_steps];
    steps[0].weight = weights.attention_output;
    steps[0].x = a.attended.data();
    steps[0].output = ChainOutput::residual;
    steps[1].weight = weights.gate_up;
    steps[1].input = ChainInput::normed_residual;
    steps[1].norm = weights.feed_forward_norm;
    steps[1].output = ChainOutput::gated;
    steps[1].y = a.activated.data();
    steps[2].weight = weights.down;
    steps[2].x = a.activated.data();
    steps[2].output = ChainOutput::residual;
    if (layer + 1 == config_.layers) {
      run_chain(std::span(steps).first(3), rows);
      seen("attention output, feed-forward",
           {weights.attention_output, weights.gate_up, weights.down}, rows);
    } else {
      steps[3] = query_key_value(layer + 1);
      run_chain(steps, rows);
      seen("attention output, feed-forward, next query, key, value",
           {weights.attention_output, weights.gate_up, weights.down, steps[3].weight}, rows);
    }
  }
}

}  // namespace octet
