// The engine's statistics as metrics, taken anew for each scrape.
#pragma once

#include <functional>
#include <vector>

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include "server/metrics.h"

namespace octet {

class EngineCollector : public prometheus::Collectable {
 public:
  EngineCollector(const ServedModelFacts& facts, std::function<EngineStats()> stats)
      : facts_(facts), stats_(std::move(stats)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  ServedModelFacts facts_;
  std::function<EngineStats()> stats_;
};

}  // namespace octet
