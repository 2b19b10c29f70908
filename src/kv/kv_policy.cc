#include "kv/kv_policy.h"

#include <array>
#include <utility>

#include "core/error.h"

namespace octet {

std::string_view name_of(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::float32:
      return "float32";
    case KvDtype::float16:
      return "float16";
    case KvDtype::bfloat16:
      return "bfloat16";
    case KvDtype::fp8:
      return "fp8";
    case KvDtype::int8:
      return "int8";
  }
  return "?";
}

std::string_view name_of(KvScales scales) {
  switch (scales) {
    case KvScales::none:
      return "none";
    case KvScales::unit:
      return "unit";
    case KvScales::dynamic:
      return "dynamic";
  }
  return "?";
}

std::string describe(const KvLayerPolicy& policy) {
  return fmt::format("{}:{}", name_of(policy.key.dtype), name_of(policy.value.dtype));
}

namespace {

constexpr std::string_view valid_dtypes =
    "auto, float32, float16, bfloat16, fp8 (or fp8_e4m3), int8, or two of them as KEY:VALUE";

KvDtype parse_side(std::string_view word, std::string_view flag, std::string_view flag_value) {
  constexpr std::array<std::pair<std::string_view, KvDtype>, 6> names = {{
      {"float32", KvDtype::float32},
      {"float16", KvDtype::float16},
      {"bfloat16", KvDtype::bfloat16},
      {"fp8", KvDtype::fp8},
      {"fp8_e4m3", KvDtype::fp8},
      {"int8", KvDtype::int8},
  }};
  for (const auto& [name, dtype] : names) {
    if (word == name) return dtype;
  }
  if (word == "fp8_e5m2" || word == "fp8_inc" || word == "fp8_ds_mla" || word == "nvfp4") {
    throw_unsupported("{} {}: {} is not a format octet caches in; expected {}", flag, flag_value,
                      word, valid_dtypes);
  }
  throw_bad_input("{} {}: expected {}", flag, flag_value, valid_dtypes);
}

KvSidePolicy side_policy(KvDtype dtype, bool unit_scales) {
  if (!is_eight_bit(dtype)) return {dtype, KvScales::none};
  // Eight uniform bits without a scale would clip: an int8 side is always dynamic.
  if (dtype == KvDtype::fp8 && unit_scales) return {dtype, KvScales::unit};
  return {dtype, KvScales::dynamic};
}

}  // namespace

KvPolicy make_kv_policy(const KvPolicyOptions& options, int layers) {
  KvPolicy policy;
  KvDtype key = KvDtype::bfloat16;
  KvDtype value = KvDtype::bfloat16;
  if (options.dtype == "auto") {
    policy.reason = "auto: the checkpoint names no cache format, so bfloat16";
  } else {
    const std::string_view text = options.dtype;
    const std::size_t colon = text.find(':');
    key = parse_side(text.substr(0, colon), options.dtype_flag, text);
    value = colon == std::string_view::npos
                ? key
                : parse_side(text.substr(colon + 1), options.dtype_flag, text);
    policy.reason = "as --kv-cache-dtype says";
  }

  if (options.scales != "auto" && options.scales != "dynamic" && options.scales != "unit") {
    throw_bad_input("--kv-cache-scales {}: expected auto, dynamic or unit", options.scales);
  }
  const bool unit = options.scales == "unit";
  if (unit && key != KvDtype::fp8 && value != KvDtype::fp8) {
    throw_bad_input(
        "--kv-cache-scales unit applies to fp8 keys or values, and --kv-cache-dtype {} has neither",
        options.dtype);
  }

  const KvLayerPolicy layer = {side_policy(key, unit), side_policy(value, unit)};
  policy.layers.assign(static_cast<std::size_t>(layers), layer);
  policy.dtype_name =
      key == value ? std::string(name_of(key)) : fmt::format("{}:{}", name_of(key), name_of(value));
  policy.scales_name = "none";
  for (const KvSidePolicy& side : {layer.key, layer.value}) {
    if (side.scales == KvScales::dynamic && policy.scales_name == "none") {
      policy.scales_name = "dynamic";
    }
    if (side.scales == KvScales::unit) policy.scales_name = "unit";
  }
  return policy;
}

}  // namespace octet
