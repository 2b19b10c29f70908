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
  int pages_per_sequence;  // places of a sequence in the table
  const int* lengths;      // keys of each sequence
  float value_mean;
};
// For all `places` of the table; those past a sequence's pages are left out.
void launch_random_cache_fill(const FillParameters& parameters, std::int64_t places,
                              cudaStream_t stream);

}  // namespace octet
