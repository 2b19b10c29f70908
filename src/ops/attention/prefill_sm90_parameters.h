// What a launch of the prefill kernel is told. Internal to src/ops/attention.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attention/prefill_sm90_work.h"

namespace octet {

struct PrefillParameters {
  const void* query;  // bfloat16
  void* output;
  std::int64_t query_stride;
  std::int64_t output_stride;
  bool output_float32;
  float scale_log2;  // softmax_scale * log2(e): weights are powers of two

  const float* key_scales;    // static scales, [kv_heads]; null: 1
  const float* value_scales;  // the same
  const std::byte* layer;     // the arena, moved on to this layer's place in a page
  std::size_t slab_bytes;
  std::size_t page_bytes;
  std::size_t run_bytes;
  int pages_per_slab;
  const std::int32_t* page_table;
  int page_table_stride;

  const PrefillBlock* blocks;  // the longest first
  int block_count;
  int kv_heads;
  int group;   // query heads of a KV head
  int window;  // 0: none
  // Work handed out after each multiprocessor's first, and multiprocessors that are done: both 0
  // before and after a launch.
  std::uint32_t* counters;
};

}  // namespace octet
