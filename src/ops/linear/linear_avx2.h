// What the AVX2 linear kernels share. Internal: for *_avx2.cc files alone.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include "ops/linear/linear_kernels.h"

namespace octet {

inline constexpr int panel_outputs_avx2 = 2;
inline constexpr int k_step_avx2 = 32;
inline constexpr int direct_rows_avx2 = 4;

// As LinearKernels describes them. A panel is [padded k / 8][2 outputs][8], a packed tile of x
// [padded k / 8][rows][8].
void decode_panel_avx2(const WeightRows& weights, Arithmetic arithmetic, void* panel);
void multiply_direct_avx2(const void* packed, int rows, const WeightRows& weights,
                          const OutputTile& tile);
// The same for weights of type float8_e4m3, whose scales lie apart (linear_float8_avx2.cc).
void decode_panel_float8_avx2(const WeightRows& weights, float* panel);
void multiply_direct_float8_avx2(const float* x, int rows, const WeightRows& weights,
                                 const OutputTile& tile);

namespace {

inline std::int64_t padded(std::int64_t k) {
  return (k + k_step_avx2 - 1) / k_step_avx2 * k_step_avx2;
}

// Sums of the lanes of four accumulators, in the order that linear_kernels.h states.
inline __m128 sum_lanes(__m256 a, __m256 b, __m256 c, __m256 d) {
  const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
  const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
  const __m256 abcd =
      _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xEE));
  return _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1));
}

inline void store_sum(float sum, std::int64_t row, std::int64_t output, const OutputTile& tile) {
  tile.y[row * tile.y_stride + output] = tile.bias == nullptr ? sum : sum + tile.bias[output];
}

// Rounds to the nearest bfloat16, ties to even; a NaN stays one (as float_to_bfloat16).
[[gnu::always_inline]] inline __m256 round_to_bfloat16_vector(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  const __m256i rounded = _mm256_and_si256(
      _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd), upper);
  const __m256i quiet =
      _mm256_and_si256(_mm256_or_si256(bits, _mm256_set1_epi32(0x00400000)), upper);
  const __m256 is_nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
  return _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), is_nan);
}

}  // namespace
}  // namespace octet
