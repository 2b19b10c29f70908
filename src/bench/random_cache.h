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
  std::vector<int> lengths;  // keys of each sequence
  float value_mean = 0;
  KvLayerConstants constants = {};  // static scales, where the policy has them
};

// The options' policy, for one layer; with scales of a tensor or of heads, numbers near what
// calibration would find for N(0, 1).
KvPolicy random_cache_policy(const KvPolicyOptions& options, int kv_heads);

// Keys and values of N(0, 1) with the policy's scales, in Hopper's order, in shuffled pages. (int8
// keys are taken as rotated already, which changes no distribution.) Keys past a sequence's length
// are NaN codes with NaN scales.
class RandomCache {
 public:
  // Throws Error{unsupported} for formats other than e4m3, int8 and bfloat16.
  explicit RandomCache(const RandomCacheShape& shape);

  KvLayerView layer() const;                                      // device pointers
  int pages_per_sequence() const { return pages_per_sequence_; }  // of the longest
  std::int64_t pages() const { return pages_; }
  std::size_t bytes() const { return arena_.bytes(); }
  // [sequences][pages_per_sequence], on the device and here; past a sequence's pages, no page.
  const PageId* table() const { return table_.data(); }
  // Static scales on the device, [kv_heads]; null where the policy has none.
  const float* key_scales() const { return scales_or_null(key_scales_); }
  const float* value_scales() const { return scales_or_null(value_scales_); }
  const std::vector<PageId>& host_table() const { return host_table_; }
  // [pages], on the device: those of the table in its order, one behind the other.
  const PageId* pages_in_order() const { return pages_in_order_.data(); }
  // The run of a page and KV head, copied from the device's arena once and then kept.
  const std::byte* host_run(PageId page, int kv_head);

 private:
  static const float* scales_or_null(const DeviceArray<float>& scales) {
    return scales.bytes() == 0 ? nullptr : scales.data();
  }
  RandomCacheShape shape_;
  KvGroup group_;
  int pages_per_sequence_ = 0;
  std::int64_t pages_ = 0;
  DeviceArray<std::byte> arena_;
  std::vector<std::byte> host_arena_;
  std::vector<PageId> host_table_;
  DeviceArray<PageId> table_;
  DeviceArray<PageId> pages_in_order_;
  DeviceArray<float> key_scales_;
  DeviceArray<float> value_scales_;
};

}  // namespace octet
