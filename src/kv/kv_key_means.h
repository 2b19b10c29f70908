// The vectors that are subtracted from keys before they are rounded, and the files that hold them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "files/safetensors_writer.h"
#include "kv/kv_geometry.h"

namespace octet {

struct KvKeyMeans {
  std::string source;  // where they come from, as reported
  // [kv_heads, head_dim] for each layer, of keys after rope and before any rotation; empty for a
  // layer without attention.
  std::vector<std::vector<float>> layers;
};

// Reads "model.layers.N.self_attn.k_mean" for every attention layer of `geometry` from a file, or
// from key_means.safetensors in a folder. Throws Error{bad_input} that names file and tensor where
// one is missing, of another shape than [kv_heads, head_dim], not finite, or of a layer that the
// model does not have.
KvKeyMeans read_key_means(const std::string& path, std::span<const KvLayerGeometry> geometry);

// The same as tensors to be written.
std::vector<FloatTensor> key_mean_tensors(const KvKeyMeans& means,
                                          std::span<const KvLayerGeometry> geometry);

}  // namespace octet
