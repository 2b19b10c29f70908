// What each layer's cache is, or would be: told by `octet inspect`, and by `octet serve` in its
// log.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "kv/kv_policy.h"

namespace octet {

// One line for each run of layers that are alike: formats, scales, means, window; and where scales
// and means come from.
std::string cache_layers_as_text(const KvPolicy& policy,
                                 const std::vector<KvLayerGeometry>& geometry);

// One line for all layers that are alike, wherever they stand: "layers 0 to 4, 6 to 10: keys fp8
// (dynamic), values fp8 (dynamic), window 512 (as --kv-cache-dtype says)". `skipped` are those that
// --kv-cache-dtype-skip-layers names (kv/kv_skip_layers.h), one flag per layer.
std::vector<std::string> cache_layer_groups(const KvPolicy& policy,
                                            const std::vector<KvLayerGeometry>& geometry,
                                            const std::vector<bool>& skipped);

// [{"layer", "window", "key": {"dtype", "scales"}, "value": {...}, "key_mean"}], one per layer.
Json cache_layers_as_json(const KvPolicy& policy, const std::vector<KvLayerGeometry>& geometry);

// "0 to 4, 6": `layers` ascend.
std::string ranges_of(const std::vector<std::size_t>& layers);

}  // namespace octet
