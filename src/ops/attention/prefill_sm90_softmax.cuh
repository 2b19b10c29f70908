// From scores to rounded weights in the prefill kernel. Internal to src/ops/attention.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "core/cuda/ptx.cuh"
#include "ops/attention/prefill_sm90_products.cuh"
#include "ops/attention/prefill_sm90_rows.cuh"
#include "ops/attention/prefill_sm90_shared.cuh"

namespace octet {

// Brings scores to powers of two, times the values' scales. Some columns' factors are asked for
// ahead, as many as there are registers for: one at a time costs 40 cycles each.
template <typename Config>
struct PrefillColumns {
  float4 ahead[Config::columns_ahead];
};
template <typename Config>
__device__ __forceinline__ void fetch_columns(const PrefillShared<Config>& shared, int stage,
                                              PrefillColumns<Config>& columns) {
  if constexpr (Config::scaled) {
#pragma unroll
    for (int j = 0; j < Config::columns_ahead; ++j) {
      columns.ahead[j] = shared.columns[stage][4 * j + threadIdx.x % 4];
    }
  }
}
template <typename Config>
__device__ __forceinline__ void scale_scores(const PrefillShared<Config>& shared, int stage,
                                             PrefillColumns<Config>& columns, float (&x)[64]) {
  if constexpr (Config::scaled) {
    constexpr int ahead = Config::columns_ahead;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float4 column = columns.ahead[j % ahead];
      if (j + ahead < 16) {
        columns.ahead[j % ahead] = shared.columns[stage][4 * (j + ahead) + threadIdx.x % 4];
      }
      x[4 * j] = __fmaf_rn(x[4 * j], column.x, column.z);
      x[4 * j + 1] = __fmaf_rn(x[4 * j + 1], column.y, column.w);
      x[4 * j + 2] = __fmaf_rn(x[4 * j + 2], column.x, column.z);
      x[4 * j + 3] = __fmaf_rn(x[4 * j + 3], column.y, column.w);
    }
  }
}

template <typename Config>
__device__ __forceinline__ void mask_scores(const PrefillParameters& p,
                                            const PrefillShared<Config>& shared, int group,
                                            int first_key, float (&x)[64]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int last = shared.positions[group][row_of_thread(r)] - first_key -
                     2 * static_cast<int>(threadIdx.x % 4);
    const int first = p.window > 0 ? last - p.window + 1 : -prefill_tile_keys;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (8 * j + i > last || 8 * j + i < first) x[4 * j + 2 * r + i] = -INFINITY;
      }
    }
  }
}

// The largest of the thread's scores of each row, as a power of two.
template <typename Config>
__device__ __forceinline__ void find_maxima(float factor, const float (&x)[64],
                                            float (&maxima)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float partial[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) partial[k] = fmaxf(x[4 * k + 2 * r], x[4 * k + 2 * r + 1]);
#pragma unroll
    for (int j = 4; j < 16; ++j) {
      partial[j % 4] = fmaxf(partial[j % 4], fmaxf(x[4 * j + 2 * r], x[4 * j + 2 * r + 1]));
    }
    maxima[r] = fmaxf(fmaxf(partial[0], partial[1]), fmaxf(partial[2], partial[3]));
    if (!Config::scaled) maxima[r] *= factor;
  }
}

// The e4m3 codes of 2^y by a polynomial, for four z = 8 (y + 7), which is the code but for
// 8 (2^f - 1 - f), f the fraction of y; and that a parabola in the distance to the next whole y
// gives to 0.04 of a step. In float16, two at a time.
__device__ __forceinline__ std::uint32_t polynomial_codes(float z0, float z1, float z2, float z3) {
  const auto codes = [](float low, float high) {
    const std::uint32_t bits = ptx::to_float16x2_positive(low, high);
    const __half2 z = *reinterpret_cast<const __half2*>(&bits);
    const __half2 eights = __float2half2_rn(12288.0f);  // whose last bit is 8
    const __half2 distance = __habs2(__hsub2(z, __hsub2(__hadd2(z, eights), eights)));
    const __half2 slope = __hfma2(distance, __float2half2_rn(0.04289f), __float2half2_rn(-0.3431f));
    const __half2 ones = __float2half2_rn(1024.0f);  // whose last bit is 1
    const __half2 code = __hadd2(__hfma2(distance, slope, z), ones);
    return *reinterpret_cast<const std::uint32_t*>(&code);
  };
  return __byte_perm(codes(z0, z1), codes(z2, z3), 0x6420);
}

// A row's weights are 2^(x - base + 5): at most 256 where x is at most 3 above the base.
inline constexpr float prefill_base_weight = 5;
inline constexpr float prefill_above_base = 3;
inline constexpr float prefill_below_base = 4;

template <typename Config>
__device__ __forceinline__ void round_weights(float factor, const float (&x)[64],
                                              const float (&row_base)[2],
                                              std::uint32_t (&weights)[4][4]) {
  const float base[2] = {prefill_base_weight - row_base[0], prefill_base_weight - row_base[1]};
  const float base_eights[2] = {__fmaf_rn(base[0], 8.0f, 56.0f), __fmaf_rn(base[1], 8.0f, 56.0f)};
#pragma unroll
  for (int g = 0; g < 8; ++g) {
    const bool polynomial = g * Config::polynomial_groups % 8 < Config::polynomial_groups;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float y[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float score = x[8 * g + 4 * (i / 2) + 2 * r + i % 2];
        if (polynomial) {
          y[i] = __fmaf_rn(score, Config::scaled ? 8.0f : 8.0f * factor, base_eights[r]);
        } else {
          y[i] = ptx::exp2_approximate(Config::scaled ? score + base[r]
                                                      : __fmaf_rn(score, factor, base[r]));
        }
      }
      weights[g / 2][2 * (g % 2) + r] =
          polynomial ? polynomial_codes(y[0], y[1], y[2], y[3])
                     : ptx::to_e4m3x2(y[0], y[1]) | ptx::to_e4m3x2(y[2], y[3]) << 16;
    }
  }
}

// A base is kept while it fits, so that nothing waits for a row's maximum, which its four lanes
// would have to tell each other: no weight of the warp may be above 256, and the largest of each
// row must be within some powers of two of that.
template <typename Config>
__device__ __forceinline__ bool bases_fit(const PrefillState<Config>& state,
                                          const float (&maxima)[2]) {
  const bool below = maxima[0] <= state.base[0] + prefill_above_base &&
                     maxima[1] <= state.base[1] + prefill_above_base;
  // A row's four lanes are neighbours: one of them must have a score that is large enough.
  unsigned large = ~0u;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    unsigned lanes = __ballot_sync(~0u, maxima[r] > state.base[r] - prefill_below_base);
    lanes |= lanes >> 1;
    lanes |= lanes >> 2;
    large &= lanes;
  }
  return __all_sync(~0u, below) && (large & 0x11111111u) == 0x11111111u;
}

// Makes each row's maximum, rounded up, its base.
template <typename Config>
__device__ __forceinline__ void move_bases(PrefillState<Config>& state, const float (&maxima)[2]) {
  float alpha[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float maximum = maxima[r];
    maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, 1));
    maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, 2));
    // A row that sees no key of the tile keeps its base.
    if (maximum > prefill_no_score) state.base[r] = ceilf(maximum);
    const float before = state.maximum[r];
    state.maximum[r] = fmaxf(before, state.base[r]);
    alpha[r] = ptx::exp2_approximate(before - state.maximum[r]);
    state.beta[r] = ptx::exp2_approximate(state.base[r] - state.maximum[r]);
  }
  if (!__any_sync(~0u, alpha[0] != 1 || alpha[1] != 1)) return;
#pragma unroll
  for (int chunk = 0; chunk < Config::chunks - 1; ++chunk) {
#pragma unroll
    for (int i = 0; i < 32; ++i) state.output[chunk][i] *= alpha[i / 2 % 2];
  }
#pragma unroll
  for (int i = 0; i < Config::last_registers; ++i) state.last_output[i] *= alpha[i / 2 % 2];
}

// The tile's weights. The bases of the tile before are taken for this one's, so that nothing waits
// for a maximum; where they do not fit, which few tiles of a sequence see, the weights are computed
// once more.
template <typename Config>
__device__ __forceinline__ void compute_weights(float factor, bool masked, const float (&x)[64],
                                                PrefillState<Config>& state,
                                                std::uint32_t (&weights)[4][4]) {
  float maxima[2];
  bool settled = masked;
  if (masked) {
    find_maxima<Config>(factor, x, maxima);
    move_bases(state, maxima);
  }
#pragma unroll 1
  while (true) {
    round_weights<Config>(factor, x, state.base, weights);
    find_maxima<Config>(factor, x, maxima);
    if (settled || bases_fit(state, maxima)) break;
    move_bases(state, maxima);
    settled = true;
  }
}

}  // namespace octet
