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
  float scale_log2;     // softmax_scale * log2(e): weights are powers of two
  float soft_cap_log2;  // soft cap * log2(e); 0: none
  float soft_cap_factor;
  const float* sinks;        // [query_heads]; null: none
  const float* query_means;  // [rows, query_heads]; null: zeros
  const float* key_scales;   // static scales, [kv_heads]; null: 1
  const float* value_scales;
  bool keys_scaled;  // each token has its scale, in the page
  bool values_scaled;

  const std::byte* layer;  // the arena, moved on to this layer's place in a page
  std::size_t slab_bytes;
  std::size_t page_bytes;
  std::size_t run_bytes;
  int pages_per_slab;

  const std::int32_t* page_table;
  int page_table_stride;
  const std::int32_t* context_lengths;

  DecodeTurns turns;
  int query_heads;
  int group;          // query heads of a KV head
  int total_queries;  // of a KV head: group x query rows
  // A head of the work map is a KV head's `queries` queries: all of them, or one of `chunks`
  // shares.
  int chunks;
  int queries;
  bool has_query_extras;  // sinks, static key scales or a soft cap
  DecodeWork work;
  bool older_pages_settled;
  void* parts;  // two a block, of words that are not there (decode_sm90_merge.cuh)
};

}  // namespace octet
