#include <fmt/format.h>

#include "core/error.h"
#include "models/dense_decoder.h"
#include "models/gguf_reader.h"

namespace octet {

namespace {

std::vector<float> read_bias(const GgufModelReader& reader, const std::string& name, bool expected,
                             std::int64_t length) {
  if (expected) return reader.vector(name, length);
  // A bias that nothing adds would be silently wrong answers.
  if (reader.file().find_tensor(name) != nullptr) {
    throw_unsupported("{}: tensor {} is a bias that this model family has no place for",
                      reader.file().path(), name);
  }
  return {};
}

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
  weights.query_bias = read_bias(reader, prefix + "attn_q.bias", attention_biases, queries);
  weights.key_bias = read_bias(reader, prefix + "attn_k.bias", attention_biases, keys);
  weights.value_bias = read_bias(reader, prefix + "attn_v.bias", attention_biases, keys);
  weights.attention_output = reader.tensor(prefix + "attn_output.weight", {hidden, queries});
  read_bias(reader, prefix + "attn_output.bias", false, hidden);
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
  weights.output = config.tied_embeddings
                       ? weights.embedding
                       : reader.tensor("output.weight", {config.vocabulary_size, config.hidden_size});
  return weights;
}

}  // namespace octet
