// Where the portable attention kernels find things in a page of sm90's order, in 32 bits and
// without divisions (kv/element_order.h has the formulas). Internal to src/ops/attention.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "core/cuda/numbers.cuh"
#include "core/cuda/ptx.cuh"
#include "kv/kv_layout.h"
#include "ops/attention/attention_cuda_parameters.h"

namespace octet {

// Below every score, yet finite: the difference of two of them is 0 and not NaN.
inline constexpr float attention_no_score = -1e30f;

// A token's row of swizzled panels.
struct PageRow {
  int panel_shift;
  std::uint32_t start;
  std::uint32_t swizzle;
  __device__ __forceinline__ PageRow(int shift, int token)
      : panel_shift(shift),
        start(static_cast<std::uint32_t>(token) << shift),
        swizzle((start >> 7 & ((1u << shift) / 16 - 1)) << 4) {}
  // Of a byte of the row, or of the 16 from a multiple of 16 on.
  __device__ __forceinline__ std::uint32_t offset(int byte) const {
    const auto b = static_cast<std::uint32_t>(byte);
    return ((b >> panel_shift) << (panel_shift + 6)) + start +
           ((b & ((1u << panel_shift) - 1)) ^ swizzle);
  }
};

// Of a byte of a dimension's row of 64 tokens, or of up to 16 from a multiple of their number on.
__device__ __forceinline__ std::uint32_t transposed_offset(int dimension, int place) {
  const auto within = static_cast<std::uint32_t>(dimension * page_tokens + place);
  return within ^ ((static_cast<std::uint32_t>(dimension) >> 1 & 3) << 4);
}

// Ordinary loads: the newest tokens were written by a kernel that this one may have overlapped,
// which the read-only path does not allow for.
__device__ __forceinline__ uint4 load_16_bytes(const std::byte* from) {
  return *reinterpret_cast<const uint4*>(from);
}
__device__ __forceinline__ uint2 load_8_bytes(const std::byte* from) {
  return *reinterpret_cast<const uint2*>(from);
}
__device__ __forceinline__ std::uint32_t word_of(const uint4& words, int index) {
  switch (index) {
    case 0:
      return words.x;
    case 1:
      return words.y;
    case 2:
      return words.z;
    default:
      return words.w;
  }
}

__device__ __forceinline__ float load_scale(const std::byte* scales, int token) {
  return bfloat16_value(reinterpret_cast<const std::uint16_t*>(scales)[token]);
}

// A positive value scale as its logarithm, which goes into a weight's exponent, and its inverse, by
// which a row's sum takes the weight. Scales below 2^-100 count as that, so that no sum overflows.
struct ValueScale {
  float log2;
  float inverse;
  __device__ __forceinline__ explicit ValueScale(float scale)
      : log2(ptx::log2_approximate(fmaxf(scale, 0x1p-100f))),
        inverse(1.0f / fmaxf(scale, 0x1p-100f)) {}
  __device__ __forceinline__ ValueScale() : log2(0), inverse(1) {}
};

// cap * tanh(x / cap).
__device__ __forceinline__ float soft_capped(float x, float cap) { return cap * tanhf(x / cap); }

// The first byte of the run of a page and KV head.
__device__ __forceinline__ const std::byte* run_of(const AttentionParameters& p, std::int32_t page,
                                                   int kv_head) {
  const auto slab = static_cast<std::size_t>(page / p.pages_per_slab);
  const auto part = static_cast<std::size_t>(page % p.pages_per_slab);
  return p.layer + slab * p.slab_bytes + part * p.page_bytes +
         static_cast<std::size_t>(kv_head) * p.run_bytes;
}

// The power of two that brings the largest of a warp's magnitudes to [1, 2), and its inverse: a
// query of float16 neither overflows nor loses bits that count.
struct QueryScale {
  float factor;
  float inverse;
  __device__ __forceinline__ explicit QueryScale(float largest) {
    // A query of zeros, of NaNs or infinities, or of numbers below 2^-100 is left as it is.
    const std::uint32_t biased = __float_as_uint(largest) >> 23;
    const bool is_usual = biased > 27 && biased < 250;
    factor = is_usual ? __uint_as_float((254u - biased) << 23) : 1.0f;
    inverse = is_usual ? __uint_as_float(biased << 23) : 1.0f;
  }
};

}  // namespace octet
