// All that stands between the QKV product and attention, in one kernel: norms of the heads, rope,
// and the cache's rounding.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "core/cuda/launch.h"
#include "ops/cuda/device_rows.h"
#include "ops/rope/rope.h"

namespace octet {

// What a layer could not hold (KvWriteCounts), on the device; the kernel adds to it.
struct DeviceKvCounts {
  unsigned long long saturated;
  unsigned long long subnormal;
  unsigned long long non_finite;
};

// For each row r of the step:
//   qkv: [rows, (query_heads + 2 kv_heads) * head_dim] float32: query heads, key heads, value heads
//     (not bfloat16, whose 8 bits cost as much as those of an int8 code)
//   query heads: RMS norm by query_norm where given, rope, and hadamard_rotate where the cache's
//     keys are int8; rounded to bfloat16 in `query`, [rows, query_heads, head_dim]
//   key heads: RMS norm by key_norm, rope, less the key mean, rotated where int8; rounded and
//     written into the row's page as kv_write.h says
//   value heads: rounded and written likewise
// Given what comes out of rope, codes, scales and counts are bit for bit kv_write()'s, in sm90's
// order; rope itself is done as in ops/rope's portable kernel (no fused multiply-add).
//
// cosines, sines: [max_positions, pairs] float32 on the device (RopeTable's numbers); null: no
// rope. Positions must lie inside the table: the caller sees to it, since they are on the device.
// `rows` and the tables are read before the kernels ahead in the stream have ended
// (launch.overlap): nothing in the stream may still be writing those.
//
// A padded row (position -1) writes nothing, not even its query.
//
// query_means, where not null: [rows, query_heads], each query head after rope times its KV head's
// key mean (before rounding): what a soft cap or a sink must have added back to its scores. Zeros
// where the layer has no means.
//
// Throws Error{internal} for missing arrays or heads that do not divide, Error{unsupported} for a
// cache of float32, for pages in another order than sm90's, and for head_dim above max_head_dim.
struct CacheWriteCudaArgs {
  const float* qkv = nullptr;
  __nv_bfloat16* query = nullptr;
  const float* query_norm = nullptr;  // [head_dim]; null: none
  const float* key_norm = nullptr;    // [head_dim]; null: none
  float norm_epsilon = 0;
  const float* cosines = nullptr;
  const float* sines = nullptr;
  int pairs = 0;
  RopePairing pairing = RopePairing::half_split;
  int query_heads = 0;
  DeviceRows rows;
  DeviceKvLayer layer;
  DeviceKvCounts* counts = nullptr;  // of this layer; null: nothing is counted
  float* query_means = nullptr;
};
void cache_write_cuda(const CudaLaunch& launch, const CacheWriteCudaArgs& args);

}  // namespace octet
