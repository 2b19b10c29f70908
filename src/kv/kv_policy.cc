#include "kv/kv_policy.h"

#include <array>
#include <bit>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "kv/kv_skip_layers.h"

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
    case KvScales::tensor:
      return "tensor";
    case KvScales::head:
      return "head";
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
    throw_unsupported("{} {}: {} is not a format octet caches in; expected {}", flag,
                      printable(flag_value), printable(word), valid_dtypes);
  }
  throw_bad_input("{} {}: expected {}", flag, printable(flag_value), valid_dtypes);
}

struct Formats {
  KvDtype key = KvDtype::bfloat16;
  KvDtype value = KvDtype::bfloat16;
  bool unit = false;
  std::string reason;
};

Formats parse_formats(const KvPolicyOptions& options) {
  Formats formats;
  if (options.dtype == "auto") {
    formats.reason = "auto: the checkpoint names no cache format, so bfloat16";
  } else {
    const std::string_view text = options.dtype;
    const std::size_t colon = text.find(':');
    formats.key = parse_side(text.substr(0, colon), options.dtype_flag, text);
    formats.value = colon == std::string_view::npos
                        ? formats.key
                        : parse_side(text.substr(colon + 1), options.dtype_flag, text);
    formats.reason = fmt::format("as {} says", options.dtype_flag);
  }
  if (options.scales != "auto" && options.scales != "dynamic" && options.scales != "unit") {
    throw_bad_input("--kv-cache-scales {}: expected auto, dynamic or unit",
                    printable(options.scales));
  }
  formats.unit = options.scales == "unit";
  if (formats.unit && formats.key != KvDtype::fp8 && formats.value != KvDtype::fp8) {
    throw_bad_input(
        "--kv-cache-scales unit applies to fp8 keys or values, and --kv-cache-dtype {} has neither",
        options.dtype);
  }
  return formats;
}

KvSidePolicy side_policy(KvDtype dtype, bool unit_scales) {
  if (!is_eight_bit(dtype)) return {dtype, KvScales::none};
  // Eight uniform bits without a scale would clip: an int8 side is always dynamic.
  if (dtype == KvDtype::fp8 && unit_scales) return {dtype, KvScales::unit};
  return {dtype, KvScales::dynamic};
}

// "dynamic" or "unit": what the e4m3 side has where there is one, else the other's.
std::string name_scales(const KvPolicy& policy) {
  KvScales named = KvScales::none;
  for (const KvLayerPolicy& layer : policy.layers) {
    for (const KvSidePolicy& side : {layer.key, layer.value}) {
      if (side.scales == KvScales::none) continue;
      if (named == KvScales::none || named == KvScales::dynamic) named = side.scales;
    }
  }
  return std::string(name_of(named));
}

void append_bytes(std::string* bytes, std::uint32_t number) {
  for (int shift = 0; shift < 32; shift += 8) {
    bytes->push_back(static_cast<char>((number >> shift) & 0xFFu));
  }
}

void append_floats(std::string* bytes, const std::vector<float>& values) {
  append_bytes(bytes, static_cast<std::uint32_t>(values.size()));
  for (const float value : values) append_bytes(bytes, std::bit_cast<std::uint32_t>(value));
}

}  // namespace

std::string KvPolicy::fingerprint() const {
  std::string bytes = "octet kv policy 1\n";
  append_bytes(&bytes, static_cast<std::uint32_t>(layers.size()));
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    for (const KvSidePolicy& side : {layers[layer].key, layers[layer].value}) {
      bytes.push_back(static_cast<char>(side.dtype));
      bytes.push_back(static_cast<char>(side.scales));
    }
    const KvLayerConstants own = layer < constants.size() ? constants[layer] : KvLayerConstants{};
    append_floats(&bytes, own.key_scales);
    append_floats(&bytes, own.value_scales);
    append_floats(&bytes, own.query_scales);
    append_floats(&bytes, own.key_mean);
  }
  return bytes;
}

KvPolicy make_kv_policy(const KvPolicyOptions& options, std::span<const KvLayerGeometry> geometry) {
  const Formats formats = parse_formats(options);
  const std::vector<bool> skipped = skipped_layers(options.skip_layers, geometry);
  const KvLayerPolicy usual = {side_policy(formats.key, formats.unit),
                               side_policy(formats.value, formats.unit)};
  KvPolicy policy;
  policy.reason = formats.reason;
  policy.constants.resize(geometry.size());
  for (std::size_t layer = 0; layer < geometry.size(); ++layer) {
    policy.layers.push_back(skipped[layer] ? KvLayerPolicy{} : usual);
  }
  policy.dtype_name = formats.key == formats.value
                          ? std::string(name_of(formats.key))
                          : fmt::format("{}:{}", name_of(formats.key), name_of(formats.value));
  policy.scales_name = name_scales(policy);
  return policy;
}

KvPolicy make_kv_policy(const KvPolicyOptions& options, int layers) {
  const std::vector<KvLayerGeometry> geometry(static_cast<std::size_t>(layers),
                                              KvLayerGeometry{.kv_heads = 1});
  return make_kv_policy(options, geometry);
}

void check_kv_policy_options(const KvPolicyOptions& options) {
  parse_formats(options);
  check_skip_layers(options.skip_layers);
}

}  // namespace octet
