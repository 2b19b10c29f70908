// Rounds new keys and values and writes them into the cache's pages.
#pragma once

#include <cstdint>
#include <span>

#include "kv/sequence_rows.h"
#include "ops/context.h"
#include "ops/quantize/kv_write_counters.h"

namespace octet {

// Writes row r of `key` and `value` at its sequence's position.
//   key, value: [rows, kv_heads, head_dim] float32 after rope, row strides in elements
//   layer: the layer's runs; sequences: the rows' owners (pages[group] must hold the positions)
// Where the layer has key means (layer.constants->key_mean), the head's is subtracted from the key
// first. Rounding, per row and KV head, as the layer's policy says:
//   float16            nearest even, saturating at 65504
//   bfloat16           nearest even
//   fp8, unit          e4m3 nearest even, saturating at 448
//   fp8, tensor, head  the same of x / s, with s from layer.constants
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
  KvWriteCounters* counters = nullptr;  // has an entry for layer.layer; null: nothing is counted
};
void kv_write(const OpContext& context, const KvWriteArgs& args);

}  // namespace octet
