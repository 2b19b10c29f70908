// Rounds new keys and values and writes them into the cache's pages.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "kv/sequence_rows.h"
#include "ops/context.h"

namespace octet {

// What went wrong while rounding; counted, never silent.
struct KvWriteCounters {
  std::atomic<std::int64_t> saturated{0};   // elements beyond the format that became its largest
  std::atomic<std::int64_t> non_finite{0};  // NaN or infinite elements
};

// Writes row r of `key` and `value` at its sequence's position.
//   key, value: [rows, kv_heads, head_dim] float32 after rope, row strides in elements
//   layer: the layer's runs; sequences: the rows' owners (pages[group] must hold the positions)
// Rounding, per row and KV head, as the layer's policy says:
//   float16            nearest even, saturating at 65504
//   bfloat16           nearest even
//   fp8, unit          e4m3 nearest even, saturating at 448
//   fp8, dynamic       s = absmax / 448 rounded up to bfloat16; e4m3 of x / s
//   int8               keys rotated by hadamard_rotate first; s = absmax / 127 rounded up to
//                      bfloat16; round to nearest even of x / s
// An all-zero row has scale 1. NaN and infinities take no part in absmax, so that no scale is ever
// NaN or infinite: an infinity saturates, a NaN becomes e4m3's NaN or int8's 0; both are counted.
struct KvWriteArgs {
  const float* key = nullptr;
  const float* value = nullptr;
  std::int64_t key_stride = 0;
  std::int64_t value_stride = 0;
  KvLayerView layer;
  int group = 0;
  std::span<const SequenceRows> sequences;
  KvWriteCounters* counters = nullptr;
};
void kv_write(const OpContext& context, const KvWriteArgs& args);

// The scale of a row for codes of magnitude up to `largest_code`, as bfloat16 bits. `non_finite`
// grows by the elements that were left out.
std::uint16_t dynamic_scale(const float* row, int elements, float largest_code,
                            std::int64_t* non_finite);

}  // namespace octet
