#include "models/dense_decoder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "models/dense_decoder_device.h"
#include "ops/activation/gated_activation.h"
#include "ops/activation/soft_cap.h"
#include "ops/attention/attention.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/norm/rms_norm.h"

namespace octet {

namespace {

void grow(std::vector<float>& buffer, std::int64_t rows, std::int64_t width) {
  const auto floats = static_cast<std::size_t>(rows * width);
  if (buffer.size() < floats) buffer.resize(floats);
}

LinearArgs linear_args(const float* x, std::int64_t rows, const TensorView& weight,
                       const std::vector<float>& bias, float* y) {
  LinearArgs args;
  args.x = x;
  args.rows = rows;
  args.x_stride = weight.shape[1];
  args.weight = &weight;
  args.bias = bias.empty() ? nullptr : bias.data();
  args.y = y;
  args.y_stride = weight.shape[0];
  return args;
}

// For the matrices whose 8-bit activations cost most (KL divergence of SmolLM2-135M from float32:
// queries, keys and values 6e-4, the output 7e-4; all others together 1.2e-3 of 2.6e-3, with five
// sixths of the products).
OpContext with_exact_activations(OpContext context) {
  if (context.arithmetic == Arithmetic::int8) context.arithmetic = Arithmetic::int16;
  return context;
}

RopeFrequencies frequencies_of(const RopeConfig& rope, int head_dim) {
  RopeFrequencies frequencies = rope_frequencies(rope.theta, head_dim, rope.llama3);
  for (double& inverse : frequencies.inverse) inverse /= rope.linear_factor;
  for (std::size_t pair = 0; pair < rope.divisors.size(); ++pair) {
    frequencies.inverse[pair] /= rope.divisors[pair];
  }
  return frequencies;
}

const std::vector<float> no_bias;

}  // namespace

std::unique_ptr<Model> make_dense_decoder(ModelConfig config, DenseWeights weights,
                                          std::shared_ptr<const void> storage,
                                          const LoadOptions& options) {
  if (options.device == Device::cuda) {
    return make_dense_decoder_cuda(std::move(config), std::move(weights), std::move(storage),
                                   options);
  }
  return std::make_unique<DenseDecoder>(std::move(config), std::move(weights), std::move(storage),
                                        options.max_positions);
}

// Asking for more than the model was made for is refused by the engine, not paid for here.
std::vector<RopeTable> make_rope_tables(const ModelConfig& config, std::int64_t max_positions) {
  const std::int64_t positions =
      max_positions > 0 ? std::min(max_positions, config.max_positions) : config.max_positions;
  std::vector<RopeTable> tables;
  for (const RopeConfig& rope : config.ropes) {
    tables.emplace_back(frequencies_of(rope, config.head_dim), positions);
  }
  return tables;
}

DenseDecoder::DenseDecoder(ModelConfig config, DenseWeights weights,
                           std::shared_ptr<const void> storage, std::int64_t max_positions)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      storage_(std::move(storage)),
      rope_tables_(make_rope_tables(config_, max_positions)) {}

std::int64_t DenseDecoder::query_width() const {
  return static_cast<std::int64_t>(config_.query_heads) * config_.head_dim;
}

std::int64_t DenseDecoder::kv_width() const {
  return static_cast<std::int64_t>(config_.kv_heads) * config_.head_dim;
}

void DenseDecoder::grow_activations(std::int64_t rows) {
  grow(activations_.residual, rows, config_.hidden_size);
  grow(activations_.normed, rows, config_.hidden_size);
  grow(activations_.branch, rows, config_.hidden_size);
  grow(activations_.query, rows, query_width());
  grow(activations_.attended, rows, query_width());
  grow(activations_.key, rows, kv_width());
  grow(activations_.value, rows, kv_width());
  grow(activations_.gate, rows, config_.intermediate_size);
  grow(activations_.up, rows, config_.intermediate_size);
}

void DenseDecoder::extend_rope_tables(const ForwardBatch& batch) {
  const std::int32_t last = *std::max_element(batch.positions.begin(), batch.positions.end());
  for (RopeTable& table : rope_tables_) table.extend(std::int64_t{last} + 1);
}

void DenseDecoder::forward(const OpContext& context, const ForwardBatch& batch, float* logits) {
  const auto rows = static_cast<std::int64_t>(batch.tokens.size());
  if (rows == 0) return;
  grow_activations(rows);
  extend_rope_tables(batch);
  embed(context, batch);
  for (int layer = 0; layer < config_.layers; ++layer) {
    attention_block(context, batch, layer);
    feed_forward_block(context, rows, layer);
  }
  output_head(context, batch, logits);
}

void DenseDecoder::embed(const OpContext& context, const ForwardBatch& batch) {
  EmbeddingArgs args;
  args.table = &weights_.embedding;
  args.tokens = batch.tokens.data();
  args.rows = static_cast<std::int64_t>(batch.tokens.size());
  args.y = activations_.residual.data();
  args.scale = config_.embedding_scale;
  embedding(context, args);
  // A block's output is added to the residual stream by the next norm, in one pass over both.
  std::fill_n(activations_.branch.begin(), args.rows * config_.hidden_size, 0.0f);
}

void DenseDecoder::apply_norm(const OpContext& context, const std::vector<float>& weight,
                              const float* x, std::int64_t rows, float* y) const {
  RmsNormArgs args;
  args.x = x;
  args.weight = weight.data();
  args.y = y;
  args.rows = rows;
  args.width = static_cast<std::int64_t>(weight.size());
  args.epsilon = config_.norm_epsilon;
  rms_norm(context, args);
}

void DenseDecoder::add_and_norm(const OpContext& context, const std::vector<float>& weight,
                                std::int64_t rows) {
  RmsNormArgs args;
  args.x = activations_.branch.data();
  args.residual = activations_.residual.data();
  args.weight = weight.data();
  args.y = activations_.normed.data();
  args.rows = rows;
  args.width = config_.hidden_size;
  args.epsilon = config_.norm_epsilon;
  rms_norm(context, args);
}

void DenseDecoder::project(const OpContext& context, const ForwardBatch& batch, int layer) {
  const DenseLayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  const auto rows = static_cast<std::int64_t>(batch.tokens.size());
  Activations& a = activations_;
  const float* x = a.normed.data();
  linear(with_exact_activations(context),
         std::array{linear_args(x, rows, weights.query, weights.query_bias, a.query.data()),
                    linear_args(x, rows, weights.key, weights.key_bias, a.key.data()),
                    linear_args(x, rows, weights.value, weights.value_bias, a.value.data())});
  // Heads lie one after another, so that each is a row of the norm.
  if (!weights.query_norm.empty()) {
    apply_norm(context, weights.query_norm, a.query.data(), rows * config_.query_heads,
               a.query.data());
  }
  if (!weights.key_norm.empty()) {
    apply_norm(context, weights.key_norm, a.key.data(), rows * config_.kv_heads, a.key.data());
  }
}

void DenseDecoder::rotate(const OpContext& context, const ForwardBatch& batch, int layer) {
  const LayerAttention& attention = config_.attention[static_cast<std::size_t>(layer)];
  RopeArgs args;
  args.rows = static_cast<std::int64_t>(batch.tokens.size());
  args.head_dim = config_.head_dim;
  args.positions = batch.positions.data();
  args.table = &rope_tables_[static_cast<std::size_t>(attention.rope)];
  args.pairing = weights_.pairing;
  args.x = activations_.query.data();
  args.row_stride = query_width();
  args.heads = config_.query_heads;
  rope(context, args);
  args.x = activations_.key.data();
  args.row_stride = kv_width();
  args.heads = config_.kv_heads;
  rope(context, args);
}

void DenseDecoder::write_and_attend(const OpContext& context, const ForwardBatch& batch,
                                    int layer) {
  KvWriteArgs write;
  write.key = activations_.key.data();
  write.value = activations_.value.data();
  write.key_stride = kv_width();
  write.value_stride = kv_width();
  write.layer = batch.pool->layer_view(layer);
  write.group = batch.pool->layout().group_of(layer);
  write.sequences = batch.sequences;
  write.counters = batch.counters;
  kv_write(context, write);

  AttentionArgs attend;
  attend.query = activations_.query.data();
  attend.output = activations_.attended.data();
  attend.query_stride = query_width();
  attend.output_stride = query_width();
  attend.query_heads = config_.query_heads;
  attend.softmax_scale = config_.softmax_scale;
  attend.layer = write.layer;
  attend.group = write.group;
  attend.sequences = batch.sequences;
  attention(context, attend);
}

void DenseDecoder::attention_block(const OpContext& context, const ForwardBatch& batch, int layer) {
  const DenseLayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  const auto rows = static_cast<std::int64_t>(batch.tokens.size());
  Activations& a = activations_;
  add_and_norm(context, weights.attention_norm, rows);
  project(context, batch, layer);
  rotate(context, batch, layer);
  write_and_attend(context, batch, layer);
  linear(context,
         linear_args(a.attended.data(), rows, weights.attention_output, no_bias, a.branch.data()));
  if (!weights.post_attention_norm.empty()) {
    apply_norm(context, weights.post_attention_norm, a.branch.data(), rows, a.branch.data());
  }
}

void DenseDecoder::feed_forward_block(const OpContext& context, std::int64_t rows, int layer) {
  const DenseLayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  Activations& a = activations_;
  add_and_norm(context, weights.feed_forward_norm, rows);
  const float* x = a.normed.data();
  linear(context, std::array{linear_args(x, rows, weights.gate, no_bias, a.gate.data()),
                             linear_args(x, rows, weights.up, no_bias, a.up.data())});
  GatedActivationArgs activate;
  activate.activation = config_.activation;
  activate.gate = a.gate.data();
  activate.up = a.up.data();
  activate.y = a.gate.data();
  activate.rows = rows;
  activate.width = config_.intermediate_size;
  gated_activation(context, activate);
  linear(context, linear_args(a.gate.data(), rows, weights.down, no_bias, a.branch.data()));
  if (!weights.post_feed_forward_norm.empty()) {
    apply_norm(context, weights.post_feed_forward_norm, a.branch.data(), rows, a.branch.data());
  }
}

// Norm and output matrix for the wanted rows alone: the matrix is a third of a small model's work.
void DenseDecoder::output_head(const OpContext& context, const ForwardBatch& batch, float* logits) {
  const auto wanted = static_cast<std::int64_t>(batch.logit_rows.size());
  if (wanted == 0) return;
  const auto width = static_cast<std::int64_t>(config_.hidden_size);
  Activations& a = activations_;
  grow(a.sampled, wanted, width);
  for (std::int64_t row = 0; row < wanted; ++row) {
    const std::int64_t source = batch.logit_rows[static_cast<std::size_t>(row)];
    for (std::int64_t i = 0; i < width; ++i) {
      a.sampled[static_cast<std::size_t>(row * width + i)] =
          a.residual[static_cast<std::size_t>(source * width + i)] +
          a.branch[static_cast<std::size_t>(source * width + i)];
    }
  }
  apply_norm(context, weights_.output_norm, a.sampled.data(), wanted, a.sampled.data());
  linear(with_exact_activations(context),
         linear_args(a.sampled.data(), wanted, weights_.output, no_bias, logits));
  if (config_.logit_soft_cap > 0.0f) {
    soft_cap(context, config_.logit_soft_cap, logits, wanted * config_.vocabulary_size);
  }
}

}  // namespace octet
