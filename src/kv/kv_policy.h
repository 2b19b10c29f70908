// Which format and which scales each layer's keys and values are cached with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kv/kv_dtype.h"

namespace octet {

// How the scale s of "x = stored * s" is found.
enum class KvScales : std::uint8_t {
  none,     // the format needs none: float32, float16, bfloat16
  unit,     // s = 1 (e4m3 only)
  dynamic,  // per token and KV head: absmax / 448 (e4m3) or / 127 (int8), bfloat16 rounded up
};

std::string_view name_of(KvScales scales);

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

// The --kv-cache-* flags as given.
struct KvPolicyOptions {
  std::string dtype = "auto";   // K[:V] of float32, float16, bfloat16, fp8 (= fp8_e4m3), int8
  std::string scales = "auto";  // auto, dynamic, unit
  std::string_view dtype_flag = "--kv-cache-dtype";  // what errors call `dtype`
};

struct KvPolicy {
  std::vector<KvLayerPolicy> layers;
  std::string dtype_name;   // as reported: "fp8", "int8:fp8"
  std::string scales_name;  // "dynamic", "unit", "none"
  std::string reason;       // why these, for the start-up line
};

// Throws Error{bad_input} that names the flag and its valid values, and Error{unsupported} for
// vLLM's spellings of formats that octet does not cache in.
KvPolicy make_kv_policy(const KvPolicyOptions& options, int layers);

}  // namespace octet
