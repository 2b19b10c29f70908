// From scores to rounded weights in the prefill kernels, two at a time. Internal to
// src/ops/attention.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "core/cuda/ptx.cuh"
#include "ops/attention/prefill_sm90_rows.cuh"
#include "ops/attention/prefill_sm90_shared.cuh"

namespace octet {

// The e4m3 codes of 2^y by a polynomial, for four z = 8 (y + 7), which is the code but for
// 8 (2^f - 1 - f), f the fraction of y; and that a parabola in the distance to the next whole y
// gives to 0.04 of a step. In float16, two at a time.
__device__ __forceinline__ std::uint32_t polynomial_codes(__half2 low, __half2 high) {
  const auto codes = [](__half2 z) {
    const __half2 eights = __float2half2_rn(12288.0f);  // whose last bit is 8
    const __half2 distance = __habs2(__hsub2(z, __hsub2(__hadd2(z, eights), eights)));
    const __half2 slope = __hfma2(distance, __float2half2_rn(0.04289f), __float2half2_rn(-0.3431f));
    const __half2 ones = __float2half2_rn(1024.0f);  // whose last bit is 1
    const __half2 code = __hadd2(__hfma2(distance, slope, z), ones);
    return *reinterpret_cast<const std::uint32_t*>(&code);
  };
  return __byte_perm(codes(low), codes(high), 0x6420);
}

// A row's weights are 2^(x - base + 5): at most 256 where x is at most 3 above the base.
inline constexpr float prefill_base_weight = 5;
inline constexpr float prefill_above_base = 3;
inline constexpr float prefill_below_base = 4;

// Of the thread's two rows, as powers of two: the outputs are relative to `maximum`, the largest
// base so far; the weights of a tile to `base`; and its products must be multiplied by
// beta = base / maximum, once the outputs have been by alpha.
struct PrefillBases {
  float maximum[2];
  float base[2];
  float alpha[2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      maximum[r] = base[r] = prefill_no_score;
      alpha[r] = 1;
    }
  }
  __device__ __forceinline__ float beta(int r) const {
    return ptx::exp2_approximate(base[r] - maximum[r]);
  }
  // A base is kept while it fits, so that nothing waits for a row's maximum, which its four lanes
  // would have to tell each other: no weight of the warp may be above 256, and the largest of each
  // row must be within some powers of two of that. maxima: relative to the bases.
  __device__ __forceinline__ static bool fit(float first, float second) {
    const bool below = first <= prefill_above_base && second <= prefill_above_base;
    // A row's four lanes are neighbours: one of them must have a score that is large enough.
    unsigned large = ~0u;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      unsigned lanes = __ballot_sync(~0u, (r == 0 ? first : second) > -prefill_below_base);
      lanes |= lanes >> 1;
      lanes |= lanes >> 2;
      large &= lanes;
    }
    return __all_sync(~0u, below) && (large & 0x11111111u) == 0x11111111u;
  }
  // Makes each row's maximum, rounded up, its base.
  __device__ __forceinline__ void move(const float (&maxima)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float highest = maxima[r];
      highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
      // A row that sees no key of the tile keeps its base.
      if (highest > prefill_no_score) base[r] = ceilf(highest);
      const float before = maximum[r];
      maximum[r] = fmaxf(before, base[r]);
      alpha[r] = ptx::exp2_approximate(before - maximum[r]);
    }
  }
};

__device__ __forceinline__ __half2 as_half2(std::uint32_t bits) {
  return *reinterpret_cast<const __half2*>(&bits);
}
__device__ __forceinline__ std::uint32_t as_bits(__half2 pair) {
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// A thread's share of the columns' factors: scores become powers of two by x * key + value.
struct PrefillColumnPairs {
  std::uint32_t key[16];
  std::uint32_t value[16];
};
template <typename Config>
__device__ __forceinline__ void fetch_columns(const PrefillShared<Config>& shared, int stage,
                                              PrefillColumnPairs& columns) {
  const auto* from = reinterpret_cast<const uint4*>(shared.columns[stage]) + threadIdx.x % 4;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const uint4 words = from[4 * k];
    columns.key[2 * k] = words.x;
    columns.value[2 * k] = words.y;
    columns.key[2 * k + 1] = words.z;
    columns.value[2 * k + 1] = words.w;
  }
}

// The scores of row r and two columns in float16.
__device__ __forceinline__ __half2 score_pair(const std::uint32_t (&scores)[32], int j, int r,
                                              const float (&)[2]) {
  return as_half2(scores[2 * j + r]);
}
__device__ __forceinline__ __half2 score_pair(const std::int32_t (&scores)[64], int j, int r,
                                              const float (&rows)[2]) {
  return as_half2(ptx::to_float16x2(static_cast<float>(scores[4 * j + 2 * r]) * rows[r],
                                    static_cast<float>(scores[4 * j + 2 * r + 1]) * rows[r]));
}

// Factors of the thread's rows.
template <typename Config>
__device__ __forceinline__ void fetch_rows(const PrefillShared<Config>& shared, int group,
                                           float (&rows)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    rows[r] = Config::keys == PrefillKeys::int8 ? shared.score_factors[group][row_of_thread(r)] : 1;
  }
}

// powers[r][j]: row r's, of columns 8 j + 2 (lane % 4) and the next. factor: of all columns, where
// they have none of their own.
template <typename Config>
__device__ __forceinline__ void scale_scores(const PrefillScores<Config>& x,
                                             const PrefillColumnPairs& columns,
                                             const float (&rows)[2], float factor,
                                             std::uint32_t (&powers)[2][16]) {
  const __half2 factors = __float2half2_rn(factor);
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const __half2 scores = score_pair(x, j, r, rows);
      powers[r][j] = as_bits(
          Config::scaled ? __hfma2(scores, as_half2(columns.key[j]), as_half2(columns.value[j]))
                         : __hmul2(scores, factors));
    }
  }
}

template <typename Config>
__device__ __forceinline__ void mask_powers(const PrefillParameters& p,
                                            const PrefillShared<Config>& shared, int group,
                                            int first_key, std::uint32_t (&powers)[2][16]) {
  constexpr std::uint32_t none = 0xFC00;  // minus infinity
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int last = shared.positions[group][row_of_thread(r)] - first_key -
                     2 * static_cast<int>(threadIdx.x % 4);
    const int first = p.window > 0 ? last - p.window + 1 : -prefill_tile_keys;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      if (8 * j > last || 8 * j < first) powers[r][j] = (powers[r][j] & 0xFFFF0000u) | none;
      if (8 * j + 1 > last || 8 * j + 1 < first) {
        powers[r][j] = (powers[r][j] & 0xFFFFu) | none << 16;
      }
    }
  }
}

// The largest of the thread's powers of each row.
__device__ __forceinline__ void find_maxima(const std::uint32_t (&powers)[2][16],
                                            float (&maxima)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    __half2 partial[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) partial[k] = as_half2(powers[r][k]);
#pragma unroll
    for (int j = 4; j < 16; ++j) {
      partial[j % 4] = __hmax2(partial[j % 4], as_half2(powers[r][j]));
    }
    const __half2 pair = __hmax2(__hmax2(partial[0], partial[1]), __hmax2(partial[2], partial[3]));
    maxima[r] = __half2float(__hmax(__low2half(pair), __high2half(pair)));
  }
}

// The weights of sixteen keys, for the product's step and its registers: rows 0 and 1.
template <bool polynomial>
__device__ __forceinline__ std::uint32_t round_powers(std::uint32_t low, std::uint32_t high,
                                                      __half2 offset) {
  const __half2 first = __hadd2(as_half2(low), offset);
  const __half2 second = __hadd2(as_half2(high), offset);
  if constexpr (polynomial) {
    const __half2 eight = __float2half2_rn(8.0f);
    const __half2 bias = __float2half2_rn(56.0f);
    return polynomial_codes(__hfma2_relu(first, eight, bias), __hfma2_relu(second, eight, bias));
  } else {
    return ptx::float16x2_to_e4m3x4(ptx::exp2_float16x2(as_bits(first)),
                                    ptx::exp2_float16x2(as_bits(second)));
  }
}
template <typename Config>
__device__ __forceinline__ void round_weights(const std::uint32_t (&powers)[2][16],
                                              const float (&base)[2],
                                              std::uint32_t (&weights)[4][4]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    // A row that has seen no key has nothing but minus infinities, which must not meet infinity.
    const __half2 offset = __float2half2_rn(fminf(prefill_base_weight - base[r], 60000.0f));
#pragma unroll
    for (int g = 0; g < 8; ++g) {
      const bool polynomial = g * Config::polynomial_groups % 8 < Config::polynomial_groups;
      weights[g / 2][2 * (g % 2) + r] =
          polynomial ? round_powers<true>(powers[r][2 * g], powers[r][2 * g + 1], offset)
                     : round_powers<false>(powers[r][2 * g], powers[r][2 * g + 1], offset);
    }
  }
}

}  // namespace octet
