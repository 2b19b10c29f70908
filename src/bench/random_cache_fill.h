// Fills a cache on the GPU. Internal to src/bench.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kv/page_pool.h"

namespace octet {

struct FillParameters {
  std::byte* arena;
  const PageId* table;
  std::size_t run_bytes;
  std::size_t value_offset;
  std::size_t key_scale_offset;
  std::size_t value_scale_offset;
  KvOrder key_order;
  KvOrder value_order;
  KvSidePolicy key;
  KvSidePolicy value;
  const float* key_scales;  // [kv_heads], of static scales
  const float* value_scales;
  int head_dim;
  int kv_heads;
  int pages_per_sequence;
  int context;
  float value_mean;
};
// `pages` logical pages, in the order of the table.
void launch_random_cache_fill(const FillParameters& parameters, std::int64_t pages,
                              cudaStream_t stream);

}  // namespace octet
