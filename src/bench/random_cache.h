// A paged cache of random keys and values on the GPU, for benchmarks.
#pragma once

#include <cstdint>
#include <vector>

#include "core/cuda/device_memory.h"
#include "kv/kv_layout.h"
#include "kv/page_pool.h"

namespace octet {

struct RandomCacheShape {
  KvLayerPolicy policy;
  KvLayerGeometry geometry;
  int sequences = 0;  // all of the same length
  int context = 0;
  float value_mean = 0;
};

// e4m3 keys and values of N(0, 1) with the policy's scales, in Hopper's order, in shuffled pages.
// Keys past the context are NaN codes with NaN scales.
class RandomCache {
 public:
  // Throws Error{unsupported} for formats other than e4m3.
  explicit RandomCache(const RandomCacheShape& shape);

  KvLayerView layer() const;  // device pointers
  int pages_per_sequence() const { return pages_per_sequence_; }
  std::int64_t pages() const { return pages_; }
  std::size_t bytes() const { return arena_.bytes(); }
  // [sequences][pages_per_sequence], on the device and here.
  const PageId* table() const { return table_.data(); }
  const std::vector<PageId>& host_table() const { return host_table_; }
  // The run of a page and KV head, copied from the device's arena once and then kept.
  const std::byte* host_run(PageId page, int kv_head);

 private:
  RandomCacheShape shape_;
  KvGroup group_;
  int pages_per_sequence_ = 0;
  std::int64_t pages_ = 0;
  DeviceArray<std::byte> arena_;
  std::vector<std::byte> host_arena_;
  std::vector<PageId> host_table_;
  DeviceArray<PageId> table_;
};

}  // namespace octet
