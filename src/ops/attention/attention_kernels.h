// The inner loops of CPU attention, one table per instruction set. Internal to src/ops/attention.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kv/kv_dtype.h"
#include "kv/kv_layout.h"

namespace octet {

// One row of scores against one tile of keys.
struct SoftmaxTile {
  float* scores = nullptr;              // [page_tokens]: q . k in, weights out
  const float* key_scales = nullptr;    // [page_tokens]: softmax scale x the key's own
  const float* value_scales = nullptr;  // [page_tokens]; null: all 1
  int first = 0;                        // the row sees keys [first, last) of the tile
  int last = 0;
  float* maximum = nullptr;  // running, -inf before the first key
  float* sum = nullptr;      // running
};

// Products of bfloat16 pairs with float32 sums, for Arithmetic::bfloat16 where keys and values are
// exact in bfloat16 (int8, fp8 and bfloat16 itself). Depth is taken two at a time; columns is a
// multiple of 64.
struct AttentionPairKernels {
  // To bfloat16, nearest even; count is a multiple of 16.
  void (*round)(const float* x, std::int64_t count, std::uint16_t* out);
  // [depth][columns] as stored to [ceil(depth / 2)][columns][2]; e4m3 / fp8_divisor. An odd depth
  // is made even by zeros.
  void (*decode)(KvDtype dtype, const std::byte* stored, int depth, int columns,
                 std::uint16_t* pairs);
  // c[r][n] = (scale ? c[r][n] * scale[r] : 0) + the products of a[r] and column n, one chain over
  // ascending pairs for each output. c is [rows][columns].
  void (*multiply)(const std::uint16_t* a, int a_stride, const std::uint16_t* pairs, float* c,
                   const float* scale, int rows, int pair_count, int columns);
};

struct AttentionKernels {
  // e4m3 elements are decoded to their value / fp8_divisor: an exact power of two that costs
  // nothing in the scales, which must hold it.
  float fp8_divisor;

  // Stored elements to floats; count is a multiple of 8.
  void (*decode)(KvDtype dtype, const std::byte* stored, std::int64_t count, float* out);

  // c[r][n] = (scale ? c[r][n] * scale[r] : 0) + sum_k a[r][k] b[k][n], one fused chain over
  // ascending k for each output, so that blocking changes no bit. columns is a multiple of 8.
  void (*multiply)(const float* a, int a_stride, const float* b, int b_stride, float* c,
                   int c_stride, const float* scale, int rows, int depth, int columns);

  // The same sums with b as it is stored, [depth][columns] of dtype, and c as [rows][columns]; 1 to
  // attention_direct_rows rows, columns a multiple of 16. `next_b` (or null) is what will be asked
  // for next, laid out alike: fetched into the caches meanwhile. Null where decoding into a buffer
  // first is as fast.
  void (*multiply_stored)(KvDtype dtype, const float* a, int a_stride, const std::byte* b,
                          const std::byte* next_b, float* c, const float* scale, int rows,
                          int depth, int columns);

  // One step of the online softmax: weights p_j = exp(s_j - m) with m the new running maximum,
  // times the value's scale; sum = sum * alpha + sum_j p_j. Returns alpha = exp(old m - m), by
  // which the row's output must be scaled. Keys outside [first, last) get weight 0 and are not
  // read.
  float (*softmax_tile)(const SoftmaxTile& tile);

  // exp with the same bits as in softmax_tile.
  float (*exponential)(float x);

  // Null where the instruction set multiplies no bfloat16.
  const AttentionPairKernels* pairs;
};

// Query heads of a KV head that decode takes through the stored cache at once.
inline constexpr int attention_direct_rows = 12;

const AttentionKernels& attention_kernels_portable();
// x86-64 builds alone (ops/cpu/dispatch.h):
const AttentionKernels& attention_kernels_avx2();
const AttentionKernels& attention_kernels_avx512();
const AttentionKernels& attention_kernels_avx512_bf16();

}  // namespace octet
