#include "models/dense_decoder.h"

namespace octet {

namespace {

namespace roles {
constexpr TensorRole output_norm{"output_norm.weight", "norm.weight"};
constexpr TensorRole output{"output.weight", "lm_head.weight"};
constexpr TensorRole embedding{"token_embd.weight", "embed_tokens.weight"};
constexpr TensorRole attention_norm{"attn_norm.weight", "input_layernorm.weight"};
constexpr TensorRole query{"attn_q.weight", "self_attn.q_proj.weight"};
constexpr TensorRole key{"attn_k.weight", "self_attn.k_proj.weight"};
constexpr TensorRole value{"attn_v.weight", "self_attn.v_proj.weight"};
constexpr TensorRole query_bias{"attn_q.bias", "self_attn.q_proj.bias"};
constexpr TensorRole key_bias{"attn_k.bias", "self_attn.k_proj.bias"};
constexpr TensorRole value_bias{"attn_v.bias", "self_attn.v_proj.bias"};
constexpr TensorRole query_norm{"attn_q_norm.weight", "self_attn.q_norm.weight"};
constexpr TensorRole key_norm{"attn_k_norm.weight", "self_attn.k_norm.weight"};
constexpr TensorRole attention_output{"attn_output.weight", "self_attn.o_proj.weight"};
constexpr TensorRole post_attention_norm{"post_attention_norm.weight",
                                         "post_attention_layernorm.weight"};
// Hugging Face's llama calls the norm before the feed-forward block after what precedes it.
constexpr TensorRole feed_forward_norm{"ffn_norm.weight", "post_attention_layernorm.weight"};
constexpr TensorRole pre_feed_forward_norm{"ffn_norm.weight", "pre_feedforward_layernorm.weight"};
constexpr TensorRole gate{"ffn_gate.weight", "mlp.gate_proj.weight"};
constexpr TensorRole up{"ffn_up.weight", "mlp.up_proj.weight"};
constexpr TensorRole down{"ffn_down.weight", "mlp.down_proj.weight"};
constexpr TensorRole post_feed_forward_norm{"post_ffw_norm.weight",
                                            "post_feedforward_layernorm.weight"};
}  // namespace roles

// What Hugging Face's stored norms lack.
float norm_offset(const ModelReader& reader, const DenseParts& parts) {
  const bool around_zero =
      parts.norms_around_one && reader.format() == CheckpointFormat::hugging_face;
  return around_zero ? 1.0f : 0.0f;
}

DenseLayerWeights read_layer(ModelReader& reader, const ModelConfig& config, int layer,
                             const DenseParts& parts) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t queries = static_cast<std::int64_t>(config.query_heads) * config.head_dim;
  const std::int64_t keys = static_cast<std::int64_t>(config.kv_heads) * config.head_dim;
  const std::int64_t inner = config.intermediate_size;
  const auto norm = [&, offset = norm_offset(reader, parts)](TensorRole role, std::int64_t width) {
    return reader.read_vector(role, layer, width, offset);
  };
  const auto matrix = [&](TensorRole role, std::int64_t outputs, std::int64_t inputs) {
    return reader.require_tensor(role, layer, {outputs, inputs});
  };
  DenseLayerWeights weights;
  weights.attention_norm = norm(roles::attention_norm, hidden);
  weights.query = matrix(roles::query, queries, hidden);
  weights.key = matrix(roles::key, keys, hidden);
  weights.value = matrix(roles::value, keys, hidden);
  if (parts.attention_biases) {
    weights.query_bias = reader.read_vector(roles::query_bias, layer, queries);
    weights.key_bias = reader.read_vector(roles::key_bias, layer, keys);
    weights.value_bias = reader.read_vector(roles::value_bias, layer, keys);
  }
  if (parts.query_key_norms) {
    weights.query_norm = norm(roles::query_norm, config.head_dim);
    weights.key_norm = norm(roles::key_norm, config.head_dim);
  }
  weights.attention_output = matrix(roles::attention_output, hidden, queries);
  if (parts.post_norms) {
    weights.post_attention_norm = norm(roles::post_attention_norm, hidden);
    weights.feed_forward_norm = norm(roles::pre_feed_forward_norm, hidden);
    weights.post_feed_forward_norm = norm(roles::post_feed_forward_norm, hidden);
  } else {
    weights.feed_forward_norm = norm(roles::feed_forward_norm, hidden);
  }
  weights.gate = matrix(roles::gate, inner, hidden);
  weights.up = matrix(roles::up, inner, hidden);
  weights.down = matrix(roles::down, hidden, inner);
  return weights;
}

}  // namespace

DenseWeights read_dense_weights(ModelReader& reader, ModelConfig* config, const DenseParts& parts) {
  DenseWeights weights;
  config->vocabulary_size = reader.read_vocabulary_size(roles::embedding, config->hidden_size);
  const std::vector<std::int64_t> table = {config->vocabulary_size, config->hidden_size};
  weights.embedding = reader.require_tensor(roles::embedding, no_layer, table);
  for (int layer = 0; layer < config->layers; ++layer) {
    weights.layers.push_back(read_layer(reader, *config, layer, parts));
  }
  weights.output_norm = reader.read_vector(roles::output_norm, no_layer, config->hidden_size,
                                           norm_offset(reader, parts));
  weights.output = config->tied_embeddings ? weights.embedding
                                           : reader.require_tensor(roles::output, no_layer, table);
  return weights;
}

}  // namespace octet
