#include "kv/kv_scales.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include "core/error.h"
#include "core/printable.h"
#include "files/block_decode.h"
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
  }
  return values;
}

void take(const Safetensors& file, const StoredTensor& stored, const std::vector<float>& values,
          KvStoredScale* into) {
  if (into->given()) {
    throw_bad_input("{}: tensors {} and {} are two scales for one thing, expected one of them",
                    file.path(), printable(into->tensor), printable(stored.view.name));
  }
  *into = {stored.view.name, values};
}

// What of a layer's scales is missing: values' are their keys', as other engines have it; values'
// alone say nothing of keys.
void complete(const Safetensors& file, int layer, KvLayerScales* scales) {
  if (!scales->key.given()) {
    const KvStoredScale& other = scales->value.given() ? scales->value : scales->query;
    if (!other.given()) return;
    throw_bad_input("{}: layer {} has the scale {} but none for its keys", file.path(), layer,
                    printable(other.tensor));
  }
  if (!scales->value.given()) scales->value = scales->key;
}

// One number per KV head; `reduces`: or a multiple of that, of which each group gives its largest.
std::vector<float> fit(const KvScaleSet& set, const KvStoredScale& scale, int kv_heads,
                       bool reduces) {
  const auto heads = static_cast<std::size_t>(kv_heads);
  const std::size_t count = scale.values.size();
  if (count == 1) return std::vector<float>(heads, scale.values.front());
  if (count != heads && !(reduces && count % heads == 0)) {
    throw_bad_input("{}: tensor {} holds {} scales, expected 1 or one for each of {} {} heads",
                    set.source, printable(scale.tensor), count, kv_heads,
                    reduces ? "KV or query" : "KV");
  }
  std::vector<float> fitted;
  const auto group = static_cast<std::ptrdiff_t>(count / heads);
  for (auto first = scale.values.begin(); first != scale.values.end(); first += group) {
    fitted.push_back(*std::max_element(first, first + group));
  }
  return fitted;
}

}  // namespace

std::shared_ptr<const KvScaleSet> read_kv_scales(const Safetensors& file) {
  auto set = std::make_shared<KvScaleSet>();
  set->source = file.path();
  for (const StoredTensor& stored : file.tensors()) {
    const std::optional<KvScaleName> name = parse_kv_scale_name(stored.view.name);
    if (!name || name->role == KvScaleRole::unused) continue;
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
  for (std::size_t layer = 0; layer < set->layers.size(); ++layer) {
    complete(file, static_cast<int>(layer), &set->layers[layer]);
  }
  return set;
}

std::shared_ptr<const KvScaleSet> read_kv_scale_file(const std::string& path,
                                                     const std::string& flag) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path, ignored);
  const std::string file = folder ? path + "/kv_scales.safetensors" : path;
  const std::shared_ptr<const Safetensors> tensors = Safetensors::open_file(file);
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

KvFittedScales fit_scales(const KvScaleSet& set, int layer, int kv_heads) {
  const auto index = static_cast<std::size_t>(layer);
  if (index >= set.layers.size() || !set.layers[index].key.given()) {
    throw_bad_input(
        "{}: holds no scale for the keys of layer {}, expected one for each layer whose "
        "cache it scales",
        set.source, layer);
  }
  const KvLayerScales& stored = set.layers[index];
  KvFittedScales fitted;
  fitted.key = fit(set, stored.key, kv_heads, false);
  fitted.value = fit(set, stored.value, kv_heads, false);
  if (stored.query.given()) fitted.query = fit(set, stored.query, kv_heads, true);
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
