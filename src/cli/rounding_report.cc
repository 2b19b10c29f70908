#include "cli/rounding_report.h"

#include <vector>

#include <fmt/format.h>

#include "cli/inspect_cache.h"
#include "core/printable.h"

namespace octet {

namespace {

// Of the numbers that a layer wrote, half are keys and half values: this share is most of one side.
// In three real models 0.5 % of a layer's numbers are subnormal with dynamic scales, up to 27 %
// with scales of 1.
constexpr double most_subnormal = 0.4;

std::vector<std::size_t> underflowing_layers(const Engine& engine) {
  const EngineStats stats = engine.stats();
  const std::vector<KvLayerGeometry> geometry = engine.core().model().config().kv_geometry();
  std::vector<std::size_t> layers;
  for (std::size_t layer = 0; layer < stats.layer_writes.size(); ++layer) {
    const std::int64_t written =
        stats.computed_rows * 2 * geometry[layer].kv_heads * geometry[layer].head_dim;
    const auto subnormal = static_cast<double>(stats.layer_writes[layer].subnormal);
    if (subnormal > most_subnormal * static_cast<double>(written)) layers.push_back(layer);
  }
  return layers;
}

}  // namespace

std::string rounding_note(const Engine& engine) {
  const KvWriteCounts counts = engine.core().runner().counters().total();
  std::string text;
  if (counts.saturated != 0 || counts.non_finite != 0) {
    text += fmt::format(
        "cache  rounding lost {} values beyond the format (stored as its largest) and {} that were "
        "no numbers or infinite\n",
        counts.saturated, counts.non_finite);
  }
  const std::vector<std::size_t> layers = underflowing_layers(engine);
  if (!layers.empty()) {
    const KvPolicy& policy = engine.core().policy();
    // Dynamic scales leave little for themselves to mend, and float16 has none.
    const bool fixed = policy.scales_name != "dynamic" && policy.scales_name != "none";
    text += fmt::format(
        "cache  most keys or values of layer{} {} are too small for the format and lost their bits "
        "(scales {}{}); {}\n",
        layers.size() == 1 ? "" : "s", ranges_of(layers), policy.scales_name,
        policy.scales_source.empty() ? "" : " of " + single_line(policy.scales_source),
        fixed ? "--kv-cache-scales dynamic fits each token"
              : "--kv-cache-dtype bfloat16 keeps them");
  }
  return text;
}

std::string rounding_by_layer(const Engine& engine) {
  const KvWriteCounters& counters = engine.core().runner().counters();
  std::string text = "layer  saturated  subnormal  not finite\n";
  for (int layer = 0; layer < counters.layers(); ++layer) {
    const KvWriteCounts counts = counters.layer(layer);
    text += fmt::format("{:>5}  {:>9}  {:>9}  {:>10}\n", layer, counts.saturated, counts.subnormal,
                        counts.non_finite);
  }
  return text;
}

}  // namespace octet
