// What the cache's formats could not hold, layer by layer; counted, never silent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace octet {

struct KvWriteCounts {
  std::int64_t saturated = 0;   // elements beyond the format that became its largest
  std::int64_t subnormal = 0;   // elements so small that the format keeps fewer bits, or none
  std::int64_t non_finite = 0;  // NaN or infinite elements

  KvWriteCounts& operator+=(const KvWriteCounts& other) {
    saturated += other.saturated;
    subnormal += other.subnormal;
    non_finite += other.non_finite;
    return *this;
  }
  bool any() const { return (saturated | subnormal | non_finite) != 0; }
};

// Any thread may add and any may read: each figure is right, three of one layer need not be of one
// instant.
class KvWriteCounters {
 public:
  explicit KvWriteCounters(int layers = 1) : layers_(static_cast<std::size_t>(layers)) {}

  int layers() const { return static_cast<int>(layers_.size()); }

  void add(int layer, const KvWriteCounts& counts) {
    Layer& at = layers_[static_cast<std::size_t>(layer)];
    at.saturated.fetch_add(counts.saturated, std::memory_order_relaxed);
    at.subnormal.fetch_add(counts.subnormal, std::memory_order_relaxed);
    at.non_finite.fetch_add(counts.non_finite, std::memory_order_relaxed);
  }

  KvWriteCounts layer(int layer) const {
    const Layer& at = layers_[static_cast<std::size_t>(layer)];
    return {at.saturated.load(std::memory_order_relaxed),
            at.subnormal.load(std::memory_order_relaxed),
            at.non_finite.load(std::memory_order_relaxed)};
  }

  KvWriteCounts total() const {
    KvWriteCounts sum;
    for (int layer_index = 0; layer_index < layers(); ++layer_index) sum += layer(layer_index);
    return sum;
  }

 private:
  struct Layer {
    std::atomic<std::int64_t> saturated{0};
    std::atomic<std::int64_t> subnormal{0};
    std::atomic<std::int64_t> non_finite{0};
  };
  std::vector<Layer> layers_;
};

}  // namespace octet
