// What a launch of the decode kernel is told. Internal to src/ops/attention.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attention/decode_sm90_work.h"

namespace octet {

struct DecodeParameters {
  const void* query;  // bfloat16
  void* output;
  std::int64_t query_stride;
  std::int64_t output_stride;
  bool output_float32;
  float scale_log2;  // softmax_scale * log2(e): weights are powers of two

  const std::byte* layer;  // the arena, moved on to this layer's place in a page
  std::size_t slab_bytes;
  std::size_t page_bytes;
  std::size_t run_bytes;
  int pages_per_slab;

  const std::int32_t* page_table;
  int page_table_stride;
  const std::int32_t* context_lengths;

  DecodeTurns turns;
  int group;  // query heads of a KV head
  DecodeWork work;
  bool older_pages_settled;
  void* parts;  // two a block
  std::uint32_t* arrivals;
};

inline constexpr int decode_compute_threads = 128;
inline constexpr int decode_threads = decode_compute_threads + 32;

}  // namespace octet
