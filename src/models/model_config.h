// What a model is: its geometry and constants, whatever file it came from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kv/kv_layout.h"
#include "ops/activation/gated_activation.h"
#include "ops/rope/rope.h"

namespace octet {

// One rotary embedding of a model. At most one of the scalings is active.
struct RopeConfig {
  double theta = 10000;
  double linear_factor = 1;  // positions are divided by it
  std::optional<Llama3RopeScaling> llama3;
  std::vector<float> divisors;  // of each pair's frequency; empty: none
};

// Where layers differ in their attention.
struct LayerAttention {
  int window = 0;  // keys that a query sees, itself included; 0: all
  int rope = 0;    // index into ModelConfig::ropes
  bool operator==(const LayerAttention&) const = default;
};

struct ModelConfig {
  std::string family;  // "llama", "qwen2", "gemma3"
  std::string name;    // the file's own name of the model, may be empty
  int layers = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int query_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  std::int64_t vocabulary_size = 0;
  std::int64_t max_positions = 0;  // the context the model was made for
  float norm_epsilon = 0;
  Activation activation = Activation::silu;
  float embedding_scale = 1;  // multiplies the rows of the embedding
  float softmax_scale = 0;    // multiplies query . key
  float logit_soft_cap = 0;   // 0: none
  bool tied_embeddings = false;
  std::vector<RopeConfig> ropes;
  std::vector<LayerAttention> attention;  // one per layer
  // Tokens that end an answer, where the checkpoint names them apart from its tokenizer.
  std::vector<std::int32_t> end_tokens;

  // What each layer caches.
  std::vector<KvLayerGeometry> kv_geometry() const {
    std::vector<KvLayerGeometry> geometry;
    for (const LayerAttention& layer : attention) {
      geometry.push_back({kv_heads, head_dim, layer.window});
    }
    return geometry;
  }
};

}  // namespace octet
