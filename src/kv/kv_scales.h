// The scales of a KV cache that a checkpoint or a file from `octet calibrate` carries.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "files/safetensors.h"
#include "kv/kv_geometry.h"

namespace octet {

// As stored: one number for the layer, or one per head.
struct KvStoredScale {
  std::string tensor;  // its name, for errors; empty: there is none
  std::vector<float> values;
  bool given() const { return !values.empty(); }
};

struct KvLayerScales {
  KvStoredScale key;
  KvStoredScale value;  // given wherever `key` is: a missing one is the key's
  KvStoredScale query;
};

struct KvScaleSet {
  std::string source;                 // the file's path
  std::vector<KvLayerScales> layers;  // up to the last layer that has any
  bool values_take_keys = false;      // it has none for values
};

// What a scale may be. Below, 1 / scale is no float32; above, a score (the sum over a head of query
// x code x scale) may be none.
inline constexpr float smallest_kv_scale = 0x1p-126f;
inline constexpr float largest_kv_scale = 0x1p64f;

// The scales among the file's tensors, null where there are none. Throws Error{bad_input} that
// names file and tensor for numbers that are zero, negative, infinite or NaN, an empty tensor, a
// layer with two tensors for one scale, and one that has values' or queries' scales but no keys';
// Error{unsupported} for a type that octet does not read.
std::shared_ptr<const KvScaleSet> read_kv_scales(const Safetensors& file);

// The same from a file, or from kv_scales.safetensors in a folder, as `octet calibrate` writes it;
// one without any scale is refused, and so is one whose checksum (files/safetensors_checksum.h) is
// not its tensors'. `flag` names what asked for it.
std::shared_ptr<const KvScaleSet> read_kv_scale_file(const std::string& path,
                                                     const std::string& flag);

// A layer's scales as its KV heads use them: [kv_heads] each, query empty where it is not given.
struct KvFittedScales {
  std::vector<float> key;
  std::vector<float> value;
  std::vector<float> query;
  bool key_per_head = false;
  bool value_per_head = false;
};

// Throws Error{bad_input} that names the layer where the set has none for it, and the tensor where
// it holds neither one number nor one per KV head (of a query: per KV head or per query head, of
// which each KV head's group gives its largest; where `query_heads` is 0, any multiple of the KV
// heads may be the query heads).
KvFittedScales fit_scales(const KvScaleSet& set, int layer, int kv_heads, int query_heads = 0);

// Throws where the set has scales for a layer that the model does not have.
void check_layer_count(const KvScaleSet& set, std::size_t layers);

}  // namespace octet
