#include "models/dense_decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ops/activation/swiglu.h"
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

void apply_linear(const OpContext& context, const float* x, std::int64_t rows,
                  const TensorView& weight, const std::vector<float>& bias, float* y) {
  LinearArgs args;
  args.x = x;
  args.rows = rows;
  args.x_stride = weight.shape[1];
  args.weight = &weight;
  args.bias = bias.empty() ? nullptr : bias.data();
  args.y = y;
  args.y_stride = weight.shape[0];
  linear(context, args);
}

const std::vector<float> no_bias;

}  // namespace

DenseDecoder::DenseDecoder(ModelConfig config, DenseWeights weights,
                           std::shared_ptr<const GgufFile> file, std::int64_t max_positions)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      file_(std::move(file)),
      // Asking for more than the model was made for is refused by the engine, not paid for here.
      rope_table_(weights_.frequencies, max_positions > 0
                                            ? std::min(max_positions, config_.max_positions)
                                            : config_.max_positions) {}

void DenseDecoder::forward(const OpContext& context, const ForwardBatch& batch, float* logits) {
  const auto rows = static_cast<std::int64_t>(batch.tokens.size());
  if (rows == 0) return;
  grow(activations_.residual, rows, config_.hidden_size);
  grow(activations_.normed, rows, config_.hidden_size);
  grow(activations_.branch, rows, config_.hidden_size);
  grow(activations_.query, rows, static_cast<std::int64_t>(config_.query_heads) * config_.head_dim);
  grow(activations_.attended, rows,
       static_cast<std::int64_t>(config_.query_heads) * config_.head_dim);
  grow(activations_.key, rows, static_cast<std::int64_t>(config_.kv_heads) * config_.head_dim);
  grow(activations_.value, rows, static_cast<std::int64_t>(config_.kv_heads) * config_.head_dim);
  grow(activations_.gate, rows, config_.intermediate_size);
  grow(activations_.up, rows, config_.intermediate_size);

  EmbeddingArgs embed;
  embed.table = &weights_.embedding;
  embed.tokens = batch.tokens.data();
  embed.rows = rows;
  embed.y = activations_.residual.data();
  embedding(context, embed);

  // A block's output is added to the residual stream by the next norm, in one pass over both.
  std::fill_n(activations_.branch.begin(), rows * config_.hidden_size, 0.0f);
  for (int layer = 0; layer < config_.layers; ++layer) {
    attention_block(context, batch, layer);
    feed_forward_block(context, rows, layer);
  }
  output_head(context, batch, logits);
}

void DenseDecoder::attention_block(const OpContext& context, const ForwardBatch& batch, int layer) {
  const DenseLayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  const auto rows = static_cast<std::int64_t>(batch.tokens.size());
  const std::int64_t query_width =
      static_cast<std::int64_t>(config_.query_heads) * config_.head_dim;
  const std::int64_t kv_width = static_cast<std::int64_t>(config_.kv_heads) * config_.head_dim;
  Activations& a = activations_;

  RmsNormArgs norm;
  norm.x = a.branch.data();
  norm.residual = a.residual.data();
  norm.weight = weights.attention_norm.data();
  norm.y = a.normed.data();
  norm.rows = rows;
  norm.width = config_.hidden_size;
  norm.epsilon = config_.norm_epsilon;
  rms_norm(context, norm);

  apply_linear(context, a.normed.data(), rows, weights.query, weights.query_bias, a.query.data());
  apply_linear(context, a.normed.data(), rows, weights.key, weights.key_bias, a.key.data());
  apply_linear(context, a.normed.data(), rows, weights.value, weights.value_bias, a.value.data());

  RopeArgs rotate;
  rotate.rows = rows;
  rotate.head_dim = config_.head_dim;
  rotate.positions = batch.positions.data();
  rotate.table = &rope_table_;
  rotate.pairing = weights_.pairing;
  rotate.x = a.query.data();
  rotate.row_stride = query_width;
  rotate.heads = config_.query_heads;
  rope(context, rotate);
  rotate.x = a.key.data();
  rotate.row_stride = kv_width;
  rotate.heads = config_.kv_heads;
  rope(context, rotate);

  KvWriteArgs write;
  write.key = a.key.data();
  write.value = a.value.data();
  write.key_stride = kv_width;
  write.value_stride = kv_width;
  write.layer = batch.pool->layer_view(layer);
  write.group = batch.pool->layout().group_of(layer);
  write.sequences = batch.sequences;
  write.counters = batch.counters;
  kv_write(context, write);

  AttentionArgs attend;
  attend.query = a.query.data();
  attend.output = a.attended.data();
  attend.query_stride = query_width;
  attend.output_stride = query_width;
  attend.query_heads = config_.query_heads;
  attend.softmax_scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
  attend.layer = write.layer;
  attend.group = write.group;
  attend.sequences = batch.sequences;
  attention(context, attend);

  apply_linear(context, a.attended.data(), rows, weights.attention_output, no_bias,
               a.branch.data());
}

void DenseDecoder::feed_forward_block(const OpContext& context, std::int64_t rows, int layer) {
  const DenseLayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  Activations& a = activations_;
  RmsNormArgs norm;
  norm.x = a.branch.data();
  norm.residual = a.residual.data();
  norm.weight = weights.feed_forward_norm.data();
  norm.y = a.normed.data();
  norm.rows = rows;
  norm.width = config_.hidden_size;
  norm.epsilon = config_.norm_epsilon;
  rms_norm(context, norm);

  apply_linear(context, a.normed.data(), rows, weights.gate, no_bias, a.gate.data());
  apply_linear(context, a.normed.data(), rows, weights.up, no_bias, a.up.data());
  SwigluArgs activate;
  activate.gate = a.gate.data();
  activate.up = a.up.data();
  activate.y = a.gate.data();
  activate.rows = rows;
  activate.width = config_.intermediate_size;
  swiglu(context, activate);
  apply_linear(context, a.gate.data(), rows, weights.down, no_bias, a.branch.data());
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
  RmsNormArgs norm;
  norm.x = a.sampled.data();
  norm.weight = weights_.output_norm.data();
  norm.y = a.sampled.data();
  norm.rows = wanted;
  norm.width = width;
  norm.epsilon = config_.norm_epsilon;
  rms_norm(context, norm);
  apply_linear(context, a.sampled.data(), wanted, weights_.output, no_bias, logits);
}

}  // namespace octet
