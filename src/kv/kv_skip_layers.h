// --kv-cache-dtype-skip-layers: which layers keep their keys and values in the model's own format.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/kv_geometry.h"

namespace octet {

inline constexpr std::string_view skip_layers_flag = "--kv-cache-dtype-skip-layers";

// One flag per layer, true where `items` skip it. An item holds absolute layer indices and/or
// "sliding_window" (every layer that has a window), separated by spaces or commas. Throws
// Error{bad_input} that lists what is valid for this model where a word is neither, where an index
// is out of range or names a layer without attention, and where no layer has a window.
std::vector<bool> skipped_layers(const std::vector<std::string>& items,
                                 std::span<const KvLayerGeometry> geometry);

// Throws for words that are wrong whatever the model.
void check_skip_layers(const std::vector<std::string>& items);

}  // namespace octet
