// What a model is: its geometry and constants, whatever file it came from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kv/kv_layout.h"
#include "ops/rope/rope.h"

namespace octet {

struct ModelConfig {
  std::string family;  // "llama", "qwen2"
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
  double rope_theta = 0;
  std::optional<Llama3RopeScaling> rope_scaling;
  bool tied_embeddings = false;

  // What each layer caches.
  std::vector<KvLayerGeometry> kv_geometry() const {
    return std::vector<KvLayerGeometry>(static_cast<std::size_t>(layers),
                                        KvLayerGeometry{kv_heads, head_dim, 0});
  }
};

}  // namespace octet
