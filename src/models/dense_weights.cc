#include <fmt/format.h>

#include "models/dense_decoder.h"
#include "models/gguf_reader.h"

namespace octet {

namespace {

DenseLayerWeights read_layer(const GgufModelReader& reader, const ModelConfig& config, int layer,
                             bool attention_biases) {
  const std::string prefix = fmt::format("blk.{}.", layer);
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t queries = static_cast<std::int64_t>(config.query_heads) * config.head_dim;
  const std::int64_t keys = static_cast<std::int64_t>(config.kv_heads) * config.head_dim;
  const std::int64_t inner = config.intermediate_size;
  DenseLayerWeights weights;
  weights.attention_norm = reader.vector(prefix + "attn_norm.weight", hidden);
  weights.query = reader.tensor(prefix + "attn_q.weight", {queries, hidden});
  weights.key = reader.tensor(prefix + "attn_k.weight", {keys, hidden});
  weights.value = reader.tensor(prefix + "attn_v.weight", {keys, hidden});
  if (attention_biases) {
    weights.query_bias = reader.vector(prefix + "attn_q.bias", queries);
    weights.key_bias = reader.vector(prefix + "attn_k.bias", keys);
    weights.value_bias = reader.vector(prefix + "attn_v.bias", keys);
  }
  weights.attention_output = reader.tensor(prefix + "attn_output.weight", {hidden, queries});
  weights.feed_forward_norm = reader.vector(prefix + "ffn_norm.weight", hidden);
  weights.gate = reader.tensor(prefix + "ffn_gate.weight", {inner, hidden});
  weights.up = reader.tensor(prefix + "ffn_up.weight", {inner, hidden});
  weights.down = reader.tensor(prefix + "ffn_down.weight", {hidden, inner});
  return weights;
}

}  // namespace

DenseWeights read_dense_weights(const GgufModelReader& reader, const ModelConfig& config,
                                bool attention_biases) {
  DenseWeights weights;
  weights.embedding =
      reader.tensor("token_embd.weight", {config.vocabulary_size, config.hidden_size});
  for (int layer = 0; layer < config.layers; ++layer) {
    weights.layers.push_back(read_layer(reader, config, layer, attention_biases));
  }
  weights.output_norm = reader.vector("output_norm.weight", config.hidden_size);
  weights.output =
      config.tied_embeddings
          ? weights.embedding
          : reader.tensor("output.weight", {config.vocabulary_size, config.hidden_size});
  return weights;
}

}  // namespace octet
