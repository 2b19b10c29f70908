#include "kv/kv_policy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "kv/kv_checkpoint.h"
#include "kv/kv_key_means.h"
#include "kv/kv_scales.h"
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
  std::string reason;
  bool has_fp8() const { return key == KvDtype::fp8 || value == KvDtype::fp8; }
};

// "auto": the checkpoint's own scheme if it has one, else bfloat16.
Formats automatic_formats(const KvPolicyOptions& options) {
  Formats formats;
  if (options.checkpoint == nullptr || !options.checkpoint->scheme) {
    formats.reason = "auto: the checkpoint names no cache format, so bfloat16";
    return formats;
  }
  const KvCheckpointScheme& scheme = *options.checkpoint->scheme;
  if (!scheme.problem.empty()) {
    throw_unsupported("{}: {}, or {} to name a format", scheme.where, scheme.problem,
                      options.dtype_flag);
  }
  formats.key = formats.value = KvDtype::fp8;
  formats.reason = fmt::format("auto: {} asks for fp8{}", scheme.where,
                               scheme.dynamic ? " with dynamic scales" : "");
  return formats;
}

Formats parse_formats(const KvPolicyOptions& options) {
  if (options.dtype == "auto") return automatic_formats(options);
  Formats formats;
  const std::string_view text = options.dtype;
  const std::size_t colon = text.find(':');
  formats.key = parse_side(text.substr(0, colon), options.dtype_flag, text);
  formats.value = colon == std::string_view::npos
                      ? formats.key
                      : parse_side(text.substr(colon + 1), options.dtype_flag, text);
  formats.reason = fmt::format("as {} says", options.dtype_flag);
  return formats;
}

constexpr const char* scales_flag = "--kv-cache-scales";
constexpr const char* mean_flag = "--kv-cache-key-mean";

bool is_word_for_scales(const std::string& text) {
  return text == "auto" || text == "dynamic" || text == "unit";
}

void require_path(const std::string& path, const char* flag, const char* words) {
  std::error_code ignored;
  if (path.empty() || !std::filesystem::exists(path, ignored)) {
    throw_bad_input("{} {}: expected {}, or an existing file or folder", flag, printable(path),
                    words);
  }
}

// The static scales that the options ask for, null where there are none.
std::shared_ptr<const KvScaleSet> choose_scales(const KvPolicyOptions& options,
                                                const Formats& formats) {
  const bool is_file = !is_word_for_scales(options.scales);
  if (is_file) require_path(options.scales, scales_flag, "auto, dynamic or unit");
  if ((is_file || options.scales == "unit") && !formats.has_fp8()) {
    throw_bad_input("{} {} applies to fp8 keys or values, and {} {} has neither", scales_flag,
                    options.scales, options.dtype_flag, options.dtype);
  }
  if (is_file) return read_kv_scale_file(options.scales, scales_flag);
  const KvCheckpoint* checkpoint = options.checkpoint.get();
  if (options.scales == "auto" && formats.has_fp8() && checkpoint != nullptr &&
      !checkpoint->scales_problem.empty()) {
    throw_bad_input("{}, or {} dynamic to pass over the checkpoint's scales",
                    checkpoint->scales_problem, scales_flag);
  }
  if (options.scales != "auto" || !formats.has_fp8() || checkpoint == nullptr ||
      checkpoint->scales == nullptr) {
    return nullptr;
  }
  if (checkpoint->scheme && !checkpoint->scheme->problem.empty()) {
    throw_unsupported("{}: {}, or {} dynamic to pass over the checkpoint's scales",
                      checkpoint->scheme->where, checkpoint->scheme->problem, scales_flag);
  }
  if (checkpoint->scheme && checkpoint->scheme->dynamic) {
    throw_bad_input(
        "{}: holds scales, and {} says that they are dynamic; {} dynamic passes over them",
        checkpoint->scales->source, checkpoint->scheme->where, scales_flag);
  }
  return checkpoint->scales;
}

// A checkpoint whose configuration says one scale per tensor must not bring one per head, nor the
// other way round: one of the two is wrong, and taking one head's number for all would be a third
// error.
void check_strategy(const KvPolicyOptions& options, const KvScaleSet& set, int layer, int kv_heads,
                    const KvFittedScales& scales) {
  const KvCheckpoint* checkpoint = options.checkpoint.get();
  if (checkpoint == nullptr || checkpoint->scales.get() != &set || !checkpoint->scheme) return;
  const KvCheckpointScheme& scheme = *checkpoint->scheme;
  for (const bool per_head : {scales.key_per_head, scales.value_per_head}) {
    if (per_head == scheme.per_head || kv_heads == 1) continue;  // one head's is the tensor's
    throw_bad_input("{}: layer {} has {}, and {} says {}; {} dynamic passes over them", set.source,
                    layer, per_head ? "a scale for each head" : "one scale for all its heads",
                    scheme.where, per_head ? "one for the tensor" : "one for each head",
                    scales_flag);
  }
}

KvSidePolicy side_policy(KvDtype dtype, bool unit_scales) {
  if (!is_eight_bit(dtype)) return {dtype, KvScales::none};
  // Eight uniform bits without a scale would clip: an int8 side is always dynamic.
  if (dtype == KvDtype::fp8 && unit_scales) return {dtype, KvScales::unit};
  return {dtype, KvScales::dynamic};
}

void set_static_scales(const KvFittedScales& scales, KvLayerPolicy* policy,
                       KvLayerConstants* constants) {
  const auto kind = [](bool per_head) { return per_head ? KvScales::head : KvScales::tensor; };
  if (policy->key.dtype == KvDtype::fp8) {
    policy->key.scales = kind(scales.key_per_head);
    constants->key_scales = scales.key;
    constants->query_scales = scales.query;
  }
  if (policy->value.dtype == KvDtype::fp8) {
    policy->value.scales = kind(scales.value_per_head);
    constants->value_scales = scales.value;
  }
}

// What the e4m3 sides have where there are any, else the int8 ones.
std::string name_scales(const KvPolicy& policy) {
  std::set<std::string_view> of_fp8;
  bool dynamic = false;
  for (const KvLayerPolicy& layer : policy.layers) {
    for (const KvSidePolicy& side : {layer.key, layer.value}) {
      if (side.dtype == KvDtype::fp8) of_fp8.insert(name_of(side.scales));
      dynamic = dynamic || side.scales == KvScales::dynamic;
    }
  }
  if (of_fp8.size() > 1) return "mixed";
  if (!of_fp8.empty()) return std::string(*of_fp8.begin());
  return dynamic ? "dynamic" : "none";
}

KvKeyMeans read_mean_file(const KvPolicyOptions& options,
                          std::span<const KvLayerGeometry> geometry) {
  try {
    return read_key_means(options.key_mean, geometry);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", mean_flag, error.what()));
  }
}

// Gives the policy's layers their means, or says that they are lacking.
void set_key_means(const KvPolicyOptions& options, std::span<const KvLayerGeometry> geometry,
                   KvPolicy* policy) {
  policy->key_mean_name = "off";
  if (options.key_mean == "off") return;
  const bool automatic = options.key_mean == "auto";
  std::vector<std::size_t> wanted;
  for (std::size_t layer = 0; layer < geometry.size(); ++layer) {
    const KvSidePolicy& key = policy->layers[layer].key;
    if (geometry[layer].kv_heads == 0 || !is_eight_bit(key.dtype)) continue;
    if (automatic && key.scales != KvScales::dynamic) continue;
    wanted.push_back(layer);
  }
  if (!automatic && wanted.empty()) {
    throw_bad_input("{} {} applies to 8-bit keys, and {} {}{} has none", mean_flag,
                    options.key_mean, options.dtype_flag, options.dtype,
                    options.skip_layers.empty() ? "" : " without the skipped layers");
  }
  if (wanted.empty()) return;
  if (automatic && options.means == nullptr) {
    policy->lacks_key_means = true;
    return;
  }
  const KvKeyMeans means = automatic ? *options.means : read_mean_file(options, geometry);
  policy->key_mean_name = means.source;
  for (const std::size_t layer : wanted) {
    const auto width =
        static_cast<std::size_t>(geometry[layer].kv_heads * geometry[layer].head_dim);
    if (layer >= means.layers.size() || means.layers[layer].size() != width) {
      throw_error(ErrorKind::internal, "the key means of {} do not fit layer {}", means.source,
                  layer);
    }
    policy->constants[layer].key_mean = means.layers[layer];
  }
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

bool has_fp8_side(const KvLayerPolicy& layer) {
  return layer.key.dtype == KvDtype::fp8 || layer.value.dtype == KvDtype::fp8;
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

std::string KvPolicy::summary() const {
  std::map<std::string, int> formats;
  for (const KvLayerPolicy& layer : layers) ++formats[describe(layer)];
  std::string text;
  for (const auto& [format, count] : formats) {
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", format, count);
  }
  if (scales_name != "none") text += fmt::format(", scales {}", scales_name);
  if (!scales_source.empty()) text += fmt::format(" of {}", scales_source);
  if (key_mean_name != "off") text += fmt::format(", key means of {}", key_mean_name);
  return text + fmt::format(" ({}{}{})", reason, skipped.empty() ? "" : "; ", skipped);
}

KvPolicy make_kv_policy(const KvPolicyOptions& options, std::span<const KvLayerGeometry> geometry) {
  const Formats formats = parse_formats(options);
  const std::shared_ptr<const KvScaleSet> scales = choose_scales(options, formats);
  if (scales != nullptr) check_layer_count(*scales, geometry.size());
  const std::vector<bool> skipped = skipped_layers(options.skip_layers, geometry);
  const bool unit = options.scales == "unit";
  KvPolicy policy;
  policy.reason = formats.reason;
  policy.scales_source = scales != nullptr ? scales->source : std::string();
  policy.constants.resize(geometry.size());
  for (std::size_t layer = 0; layer < geometry.size(); ++layer) {
    KvLayerPolicy& own = policy.layers.emplace_back();
    if (skipped[layer]) continue;
    own = {side_policy(formats.key, unit), side_policy(formats.value, unit)};
    if (scales == nullptr || geometry[layer].kv_heads == 0) continue;
    const int index = static_cast<int>(layer);
    const int kv_heads = geometry[layer].kv_heads;
    const KvFittedScales fitted = fit_scales(*scales, index, kv_heads, options.query_heads);
    check_strategy(options, *scales, index, kv_heads, fitted);
    set_static_scales(fitted, &own, &policy.constants[layer]);
  }
  const bool left_out = std::none_of(policy.layers.begin(), policy.layers.end(), has_fp8_side);
  if (left_out && formats.has_fp8()) {
    if (options.scales != "auto" && options.scales != "dynamic") {
      throw_bad_input("{} {} applies to fp8 keys or values, and the skipped layers leave none",
                      scales_flag, options.scales);
    }
    policy.scales_source.clear();
  } else if (scales != nullptr && scales->values_take_keys && formats.value == KvDtype::fp8) {
    policy.reason += "; the scales are for keys alone, and serve values too";
  }
  if (!options.skip_layers.empty()) {
    policy.skipped = fmt::format("{} keeps {} of {} layers in bfloat16", skip_layers_flag,
                                 std::count(skipped.begin(), skipped.end(), true), skipped.size());
  }
  policy.dtype_name = formats.key == formats.value
                          ? std::string(name_of(formats.key))
                          : fmt::format("{}:{}", name_of(formats.key), name_of(formats.value));
  policy.scales_name = name_scales(policy);
  set_key_means(options, geometry, &policy);
  return policy;
}

KvPolicy make_kv_policy(const KvPolicyOptions& options, int layers) {
  const std::vector<KvLayerGeometry> geometry(static_cast<std::size_t>(layers),
                                              KvLayerGeometry{.kv_heads = 1});
  return make_kv_policy(options, geometry);
}

void check_kv_policy_options(const KvPolicyOptions& options) {
  // The checkpoint's scheme may yet come, where the formats are left to it.
  Formats formats = parse_formats(options);
  if (options.dtype == "auto" && options.checkpoint == nullptr) formats.key = KvDtype::fp8;
  choose_scales(options, formats);
  check_skip_layers(options.skip_layers);
  if (options.key_mean != "auto" && options.key_mean != "off") {
    require_path(options.key_mean, mean_flag, "auto or off");
  }
}

}  // namespace octet
