// The vectors that are subtracted from keys before they are rounded, and the files that hold them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

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
// one is missing, of another shape than [kv_heads, head_dim], not finite or beyond 2^64 (whose
// product with a query float32 could not hold), or of a layer that the model does not have; and
// where the file's checksum (files/safetensors_checksum.h) is not its tensors'. With `identity` the
// file must have a checksum, and say that it is of that identity.
KvKeyMeans read_key_means(const std::string& path, std::span<const KvLayerGeometry> geometry,
                          const std::string& identity = {});

// The bytes of such a file. `identity`: what it says that it is of; empty: nothing.
std::vector<std::byte> encode_key_means(const KvKeyMeans& means,
                                        std::span<const KvLayerGeometry> geometry,
                                        const std::string& identity = {});

}  // namespace octet
