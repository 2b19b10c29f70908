// The part of `octet inspect` that tells what each layer's cache would be.
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

// [{"layer", "window", "key": {"dtype", "scales"}, "value": {...}, "key_mean"}], one per layer.
Json cache_layers_as_json(const KvPolicy& policy, const std::vector<KvLayerGeometry>& geometry);

}  // namespace octet
