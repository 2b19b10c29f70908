#include "kv/kv_scales.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <span>

#include "core/error.h"
#include "core/printable.h"
#include "files/block_decode.h"
#include "files/safetensors_checksum.h"
#include "kv/kv_scale_names.h"

namespace octet {

namespace {

// Far beyond any model there is; bounds the memory that a crafted name can ask for.
constexpr int most_layers = 4096;
constexpr std::int64_t most_values = 65536;

std::vector<float> read_values(const Safetensors& file, const StoredTensor& stored) {
  const std::string name = printable(stored.view.name);
  const TensorView& tensor = *file.find(stored.view.name);
  const std::int64_t count = tensor.elements();
  if (count < 1 || count > most_values) {
    throw_bad_input("{}: tensor {} holds {} numbers, expected one scale or one per head",
                    file.path(), name, count);
  }
  std::vector<float> values(static_cast<std::size_t>(count));
  decode_blocks(tensor.dtype, tensor.data, values);
  for (const float value : values) {
    if (!std::isfinite(value) || value <= 0.0f) {
      throw_bad_input("{}: tensor {} holds the scale {}, expected a positive number", file.path(),
                      name, value);
    }
    if (value < smallest_kv_scale || value > largest_kv_scale) {
      throw_bad_input(
          "{}: tensor {} holds the scale {}, with which float32 cannot compute, expected a number "
          "from 2^-126 to 2^64",
          file.path(), name, value);
    }
  }
  return values;
}

// Whatever their type, zeros have no bit set.
void require_zeros(const Safetensors& file, const StoredTensor& points) {
  const std::byte* end = points.view.data + points.view.bytes;
  if (std::find_if(points.view.data, end, [](std::byte b) { return b != std::byte{0}; }) == end) {
    return;
  }
  throw_unsupported("{}: tensor {} holds values other than 0, expected symmetric scales",
                    file.path(), printable(points.view.name));
}

void take(const Safetensors& file, const StoredTensor& stored, const std::vector<float>& values,
          KvStoredScale* into) {
  if (into->given()) {
    throw_bad_input("{}: tensors {} and {} are two scales for one thing, expected one of them",
                    file.path(), printable(into->tensor), printable(stored.view.name));
  }
  *into = {stored.view.name, values};
}

// Scales of values or queries alone say nothing of keys.
void require_keys(const KvScaleSet& set) {
  for (std::size_t layer = 0; layer < set.layers.size(); ++layer) {
    const KvLayerScales& scales = set.layers[layer];
    const KvStoredScale& other = scales.value.given() ? scales.value : scales.query;
    if (scales.key.given() || !other.given()) continue;
    throw_bad_input("{}: layer {} has the scale {} but none for its keys", set.source, layer,
                    printable(other.tensor));
  }
}

// Whether the layers have scales of this kind: all that have keys', or none. What a single layer
// lacks was lost on the way.
bool all_or_none(const KvScaleSet& set, KvStoredScale KvLayerScales::*kind, const char* name) {
  const KvStoredScale* one = nullptr;
  std::optional<std::size_t> without;
  for (std::size_t layer = 0; layer < set.layers.size(); ++layer) {
    const KvLayerScales& scales = set.layers[layer];
    if ((scales.*kind).given()) {
      one = &(scales.*kind);
    } else if (scales.key.given() && !without) {
      without = layer;
    }
  }
  if (one != nullptr && without) {
    throw_bad_input("{}: holds {} but no scale for the {} of layer {}", set.source,
                    printable(one->tensor), name, *without);
  }
  return one != nullptr;
}

// One number per KV head of `scale.values`, of which there are as many for each; each group gives
// its largest.
std::vector<float> largest_of_groups(const KvStoredScale& scale, std::size_t heads) {
  std::vector<float> fitted;
  const auto group = static_cast<std::ptrdiff_t>(scale.values.size() / heads);
  for (auto first = scale.values.begin(); first != scale.values.end(); first += group) {
    fitted.push_back(*std::max_element(first, first + group));
  }
  return fitted;
}

std::vector<float> fit(const KvScaleSet& set, const KvStoredScale& scale, int kv_heads) {
  const auto heads = static_cast<std::size_t>(kv_heads);
  if (scale.values.size() == 1) return std::vector<float>(heads, scale.values.front());
  if (scale.values.size() == heads) return scale.values;
  throw_bad_input("{}: tensor {} holds {} scales, expected 1 or one for each of {} KV heads",
                  set.source, printable(scale.tensor), scale.values.size(), kv_heads);
}

std::vector<float> fit_query(const KvScaleSet& set, const KvStoredScale& scale, int kv_heads,
                             int query_heads) {
  const auto heads = static_cast<std::size_t>(kv_heads);
  const std::size_t count = scale.values.size();
  if (count == 1 || count == heads) return fit(set, scale, kv_heads);
  const bool one_each = query_heads == 0 || count == static_cast<std::size_t>(query_heads);
  if (one_each && count % heads == 0) return largest_of_groups(scale, heads);
  throw_bad_input(
      "{}: tensor {} holds {} scales, expected 1 or one for each of {} KV heads or of the query "
      "heads{}",
      set.source, printable(scale.tensor), count, kv_heads,
      query_heads > 0 ? fmt::format(", {}", query_heads) : std::string());
}

}  // namespace

std::shared_ptr<const KvScaleSet> read_kv_scales(const Safetensors& file) {
  auto set = std::make_shared<KvScaleSet>();
  set->source = file.path();
  for (const StoredTensor& stored : file.tensors()) {
    const std::optional<KvScaleName> name = parse_kv_scale_name(stored.view.name);
    if (!name || name->role == KvScaleRole::unused) continue;
    if (name->role == KvScaleRole::zero_point) {
      require_zeros(file, stored);
      continue;
    }
    if (name->layer >= most_layers) {
      throw_bad_input("{}: tensor {} is of a layer past the limit of {}", file.path(),
                      printable(stored.view.name), most_layers);
    }
    const auto layer = static_cast<std::size_t>(name->layer);
    if (set->layers.size() <= layer) set->layers.resize(layer + 1);
    KvLayerScales& scales = set->layers[layer];
    const std::vector<float> values = read_values(file, stored);
    const KvScaleRole role = name->role;
    const bool both = role == KvScaleRole::key_and_value;
    if (both || role == KvScaleRole::key) take(file, stored, values, &scales.key);
    if (both || role == KvScaleRole::value) take(file, stored, values, &scales.value);
    if (role == KvScaleRole::query) take(file, stored, values, &scales.query);
  }
  if (set->layers.empty()) return nullptr;
  require_keys(*set);
  all_or_none(*set, &KvLayerScales::query, "queries");
  // Keys' alone serve values too, as other engines have it.
  set->values_take_keys = !all_or_none(*set, &KvLayerScales::value, "values");
  if (set->values_take_keys) {
    for (KvLayerScales& scales : set->layers) scales.value = scales.key;
  }
  return set;
}

std::shared_ptr<const KvScaleSet> read_kv_scale_file(const std::string& path,
                                                     const std::string& flag) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path, ignored);
  const std::string file = folder ? path + "/kv_scales.safetensors" : path;
  std::shared_ptr<const Safetensors> tensors;
  try {
    tensors = Safetensors::open_file(file);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", flag, error.what()));
  }
  check_checksum(*tensors);
  std::shared_ptr<const KvScaleSet> set = read_kv_scales(*tensors);
  // A misspelt name would leave another scale in its place.
  for (const StoredTensor& stored : tensors->tensors()) {
    if (set == nullptr || parse_kv_scale_name(stored.view.name)) continue;
    throw_bad_input(
        "{} {}: tensor {} is no scale of a KV cache, expected names such as "
        "model.layers.0.self_attn.k_scale",
        flag, file, printable(stored.view.name));
  }
  if (set == nullptr) {
    throw_bad_input(
        "{} {}: holds no scale of a KV cache, expected tensors such as "
        "model.layers.0.self_attn.k_scale",
        flag, file);
  }
  return set;
}

KvFittedScales fit_scales(const KvScaleSet& set, int layer, int kv_heads, int query_heads) {
  const auto index = static_cast<std::size_t>(layer);
  if (index >= set.layers.size() || !set.layers[index].key.given()) {
    throw_bad_input(
        "{}: holds no scale for the keys of layer {}, expected one for each layer whose "
        "cache it scales",
        set.source, layer);
  }
  const KvLayerScales& stored = set.layers[index];
  KvFittedScales fitted;
  fitted.key = fit(set, stored.key, kv_heads);
  fitted.value = fit(set, stored.value, kv_heads);
  if (stored.query.given()) {
    fitted.query = fit_query(set, stored.query, kv_heads, query_heads);
  }
  fitted.key_per_head = stored.key.values.size() > 1;
  fitted.value_per_head = stored.value.values.size() > 1;
  return fitted;
}

void check_layer_count(const KvScaleSet& set, std::size_t layers) {
  if (set.layers.size() <= layers) return;
  throw_bad_input("{}: tensor {} is of layer {}, and the model has {} layers", set.source,
                  printable(set.layers.back().key.tensor), set.layers.size() - 1, layers);
}

}  // namespace octet
