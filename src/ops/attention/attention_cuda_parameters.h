// What the portable attention kernels are told. Internal to src/ops/attention.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_bf16.h>

#include "kv/kv_dtype.h"
#include "ops/attention/decode_sm90_work.h"

namespace octet {

// One side of a run, in sm90's order.
struct AttentionSide {
  KvDtype dtype;
  bool is_scaled;              // each token has its scale
  int panel_shift;             // log2 of the bytes of a panel's row (16-bit sides and keys)
  std::uint32_t offset;        // of the elements, in bytes from the run's first
  std::uint32_t scale_offset;  // of the tokens' scales
  const float* static_scales;  // [kv_heads]; null: none
};

// What decode and prefill have in common.
struct AttentionParameters {
  const __nv_bfloat16* query;
  __nv_bfloat16* output;
  std::int64_t query_stride;
  std::int64_t output_stride;
  float scale_log2;     // softmax_scale * log2(e): weights are powers of two
  float soft_cap_log2;  // the cap * log2(e); 0: none
  const float* sinks;
  const float* query_means;

  const std::byte* layer;  // the arena, moved on to this layer's place in a page
  std::size_t slab_bytes;
  std::size_t page_bytes;
  std::size_t run_bytes;
  int pages_per_slab;
  AttentionSide key;
  AttentionSide value;

  const std::int32_t* page_table;
  int page_table_stride;
  int head_dim;
  int query_heads;
  int kv_heads;
  int group;  // query heads of a KV head
  int window;
};

}  // namespace octet
