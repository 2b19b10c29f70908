#include "cli/inspect_cache.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/printable.h"

namespace octet {

namespace {

std::string describe_side(const KvSidePolicy& side) {
  if (side.scales == KvScales::none) return std::string(name_of(side.dtype));
  return fmt::format("{} ({})", name_of(side.dtype), name_of(side.scales));
}

// "auto" is not taken for a look at a file: the policy says whether it would be.
bool has_mean(const KvPolicy& policy, std::size_t layer) {
  const KvSidePolicy& key = policy.layers[layer].key;
  return !policy.constants[layer].key_mean.empty() ||
         (policy.lacks_key_means && is_eight_bit(key.dtype) && key.scales == KvScales::dynamic);
}

std::string describe_layer(const KvPolicy& policy, const KvLayerGeometry& geometry,
                           std::size_t layer) {
  if (geometry.kv_heads == 0) return "no attention";
  const KvLayerPolicy& own = policy.layers[layer];
  std::string text =
      fmt::format("keys {}, values {}", describe_side(own.key), describe_side(own.value));
  if (has_mean(policy, layer)) text += ", key means";
  if (geometry.window > 0) text += fmt::format(", window {}", geometry.window);
  return text;
}

// Why the layer's formats are these, and where its scales and means come from.
std::string origin_of_layer(const KvPolicy& policy, std::size_t layer, bool skipped) {
  if (skipped) return "--kv-cache-dtype-skip-layers names them";
  const KvLayerPolicy& own = policy.layers[layer];
  std::string text = policy.reason;
  if (is_static(own.key.scales) || is_static(own.value.scales)) {
    text += fmt::format("; scales of {}", printable(policy.scales_source));
  }
  if (!policy.constants[layer].key_mean.empty()) {
    text += fmt::format("; key means of {}", policy.key_mean_name);
  }
  return text;
}

Json side_as_json(const KvSidePolicy& side) {
  Json object;
  object["dtype"] = name_of(side.dtype);
  object["scales"] = name_of(side.scales);
  return object;
}

}  // namespace

std::string ranges_of(const std::vector<std::size_t>& layers) {
  std::vector<std::string> ranges;
  for (std::size_t first = 0; first < layers.size();) {
    std::size_t last = first;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    ranges.push_back(first == last ? std::to_string(layers[first])
                                   : fmt::format("{} to {}", layers[first], layers[last]));
    first = last + 1;
  }
  return fmt::format("{}", fmt::join(ranges, ", "));
}

std::string cache_layers_as_text(const KvPolicy& policy,
                                 const std::vector<KvLayerGeometry>& geometry) {
  std::string text;
  for (std::size_t first = 0; first < geometry.size();) {
    const std::string described = describe_layer(policy, geometry[first], first);
    std::size_t last = first;
    while (last + 1 < geometry.size() &&
           describe_layer(policy, geometry[last + 1], last + 1) == described) {
      ++last;
    }
    text += fmt::format(
        "{} {:<10} {}\n", first == 0 ? "layers    " : "          ",
        first == last ? std::to_string(first) : fmt::format("{} to {}", first, last), described);
    first = last + 1;
  }
  text += fmt::format("           {}\n", single_line(policy.reason));
  if (!policy.scales_source.empty()) {
    text += fmt::format("           scales of {}\n", single_line(policy.scales_source));
  }
  if (policy.lacks_key_means) {
    text += "           key means of the built-in text, taken when the model first runs\n";
  } else if (policy.key_mean_name != "off") {
    text += fmt::format("           key means of {}\n", single_line(policy.key_mean_name));
  }
  return text;
}

std::vector<std::string> cache_layer_groups(const KvPolicy& policy,
                                            const std::vector<KvLayerGeometry>& geometry,
                                            const std::vector<bool>& skipped) {
  // In the order of their first layers; a model has a handful.
  std::vector<std::pair<std::string, std::vector<std::size_t>>> groups;
  for (std::size_t layer = 0; layer < geometry.size(); ++layer) {
    std::string described = describe_layer(policy, geometry[layer], layer);
    if (geometry[layer].kv_heads > 0) {
      described += fmt::format(" ({})", origin_of_layer(policy, layer, skipped[layer]));
    }
    auto found = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& group) { return group.first == described; });
    if (found == groups.end()) {
      found = groups.insert(groups.end(), {std::move(described), {}});
    }
    found->second.push_back(layer);
  }
  std::vector<std::string> lines;
  for (const auto& [described, layers] : groups) {
    lines.push_back(
        fmt::format("layer{} {}: {}", layers.size() == 1 ? "" : "s", ranges_of(layers), described));
  }
  return lines;
}

Json cache_layers_as_json(const KvPolicy& policy, const std::vector<KvLayerGeometry>& geometry) {
  Json layers = Json::array();
  for (std::size_t layer = 0; layer < geometry.size(); ++layer) {
    Json entry;
    entry["layer"] = layer;
    entry["window"] = geometry[layer].window;
    entry["key"] = side_as_json(policy.layers[layer].key);
    entry["value"] = side_as_json(policy.layers[layer].value);
    entry["key_mean"] = has_mean(policy, layer);
    layers.push_back(std::move(entry));
  }
  return layers;
}

}  // namespace octet
