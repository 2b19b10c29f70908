// Which format and which scales each layer's keys and values are cached with.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/kv_dtype.h"
#include "kv/kv_geometry.h"

namespace octet {

struct KvCheckpoint;
struct KvKeyMeans;

// How the scale s of "x = stored * s" is found.
enum class KvScales : std::uint8_t {
  none,     // the format needs none: float32, float16, bfloat16
  unit,     // s = 1 (e4m3 only)
  dynamic,  // per token and KV head: absmax / 448 (e4m3) or / 127 (int8), bfloat16 rounded up
  tensor,   // one number for the layer's side, from a checkpoint or a file (e4m3 only)
  head,     // one number per KV head, likewise
};

std::string_view name_of(KvScales scales);

// Scales that were known before the first token, and that no page holds.
constexpr bool is_static(KvScales scales) {
  return scales == KvScales::tensor || scales == KvScales::head;
}

struct KvSidePolicy {
  KvDtype dtype = KvDtype::bfloat16;
  KvScales scales = KvScales::none;
  bool operator==(const KvSidePolicy&) const = default;
};

struct KvLayerPolicy {
  KvSidePolicy key;
  KvSidePolicy value;
  bool operator==(const KvLayerPolicy&) const = default;

  // int8 keys are rotated by a normalised Hadamard matrix before rounding, and the query with them:
  // the product is the same, the rounding error up to 13 times smaller.
  bool rotates_keys() const { return key.dtype == KvDtype::int8; }
};

// "fp8:fp8", "int8:fp8": a layer's key and value formats.
std::string describe(const KvLayerPolicy& policy);

// What a layer's rounding uses beside the policy, the same for every token. All are float32.
struct KvLayerConstants {
  std::vector<float> key_scales = {};    // [kv_heads] where the key's scales are static, else empty
  std::vector<float> value_scales = {};  // [kv_heads] where the value's are, else empty
  // [kv_heads], the largest over each KV head's group of query heads; empty where none are known.
  // For kernels that round the query to e4m3 by a fixed scale; none on the CPU does.
  std::vector<float> query_scales = {};
  // [kv_heads, head_dim], subtracted from the key after rope, before it is rotated and rounded;
  // empty: nothing is. q . (k - m) = q . k - q . m, one number per query, which softmax does not
  // see: any vector is exact. Whatever is not invariant (a soft cap, a sink) must add q . m back.
  std::vector<float> key_mean = {};
};

// The --kv-cache-* flags as given, and what they may draw on.
struct KvPolicyOptions {
  std::string dtype = "auto";  // K[:V] of float32, float16, bfloat16, fp8 (= fp8_e4m3), int8
  // auto (the checkpoint's where it has some, else dynamic), dynamic, unit, or a file or folder
  // that holds scales (kv/kv_scales.h). An int8 side is always dynamic.
  std::string scales = "auto";
  std::string_view dtype_flag = "--kv-cache-dtype";  // what errors call `dtype`
  // Layer indices and "sliding_window", separated by spaces or commas; these layers are cached in
  // bfloat16 whatever `dtype` says.
  std::vector<std::string> skip_layers = {};
  // off, auto (for 8-bit keys with dynamic scales, whose meaning it does not change), or a file or
  // folder that holds means (kv/kv_key_means.h), for all 8-bit keys.
  std::string key_mean = "off";
  // What the model's checkpoint says of its cache; null: nothing.
  std::shared_ptr<const KvCheckpoint> checkpoint = nullptr;
  // Of the model, whose checkpoint may have as many scales of queries; 0: not known.
  int query_heads = 0;
  // What `auto` takes; null: the policy lacks_key_means.
  std::shared_ptr<const KvKeyMeans> means = nullptr;
};

struct KvPolicy {
  std::vector<KvLayerPolicy> layers;
  std::vector<KvLayerConstants> constants;  // one per layer
  std::string dtype_name;                   // as reported: "fp8", "int8:fp8"
  std::string scales_name;                  // "dynamic", "unit", "tensor", "head", "none"; "mixed"
  std::string scales_source;                // the file of static scales, else empty
  std::string key_mean_name;                // "off", or where they come from
  std::string reason;                       // why these
  std::string skipped;                      // how many layers a flag keeps out of it; empty: none
  // Some layer should have key means by `auto`, and the options brought none: not to be run with.
  bool lacks_key_means = false;

  // "fp8:fp8 x 30, scales dynamic, key means of 500 built-in tokens": one line for people.
  std::string summary() const;

  // Bytes that are equal exactly where two policies store the same bytes for the same keys and
  // values: formats, scales and means of every layer. Part of the key under which a page is shared.
  std::string fingerprint() const;
};

// The policy of a model whose layers cache `geometry`. A layer without KV heads is not an attention
// layer. Throws Error{bad_input} that names the flag and its valid values, and Error{unsupported}
// for vLLM's spellings of formats that octet does not cache in, and for a checkpoint's scheme that
// octet does not cache by where no flag names another. Reads the files that the options name, and
// throws as they do.
KvPolicy make_kv_policy(const KvPolicyOptions& options, std::span<const KvLayerGeometry> geometry);

// The same for `layers` layers of which only the number is known.
KvPolicy make_kv_policy(const KvPolicyOptions& options, int layers);

// Throws as make_kv_policy does for what is wrong whatever the model: so that a bad flag is told
// before a model is read.
void check_kv_policy_options(const KvPolicyOptions& options);

}  // namespace octet
