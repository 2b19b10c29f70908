// Under which names checkpoints keep the scales of a KV cache.
#pragma once

#include <optional>
#include <string_view>

namespace octet {

enum class KvScaleRole {
  key,
  value,
  key_and_value,
  query,
  zero_point,  // of symmetric scales, the only ones that octet reads: 0
  unused,      // a softmax weight's scale: known, and of no use here
};

struct KvScaleName {
  int layer = 0;
  KvScaleRole role = KvScaleRole::unused;
};

// What a tensor of this name is to the cache; nothing where it is no scale of one. Eight families
// of names are known (vLLM's, in quantization/base_config.py and model_loader/weight_utils.py), all
// after "model.layers.N." or its kin:
//   self_attn.{k,v,q}_scale                              compressed-tensors, llm-compressor
//   self_attn.{k,v,q}_proj.output_scale                  older compressed-tensors, Quark
//   self_attn.k_proj.k_scale, self_attn.v_proj.v_scale   ModelOpt
//   self_attn.{qkv,qkqkv}_proj.{k,v}_scale               fused projections
//   mixer.{k,v}_proj.{k,v}_scale                         NemotronH
//   self_attn.q.scale, self_attn.{k,v}_cache.scale       HYV3
//   self_attn.kv_scale                                   AutoFP8: one number for both
//   self_attn.attn.{k,v,q}_scale                         vLLM's own, "already internal"
std::optional<KvScaleName> parse_kv_scale_name(std::string_view tensor);

// "model.layers.7.self_attn.k_scale": the layer and the rest after it, for names of this shape
// under any prefix that holds a text model.
struct LayerTensorName {
  int layer = 0;
  std::string_view rest;  // "self_attn.k_scale"
};
std::optional<LayerTensorName> parse_layer_tensor(std::string_view tensor);

}  // namespace octet
