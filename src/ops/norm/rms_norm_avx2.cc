#include <immintrin.h>

#include "ops/cpu/lanes_avx2.h"
#include "ops/norm/rms_norm_kernels.h"

namespace octet {
namespace {

// Adds x into the residual where there is one, and gives the sum of squares of the result.
template <bool with_residual>
float first_pass(const float* x, float* residual, std::int64_t width) {
  __m256 sums[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                    _mm256_setzero_ps()};
  const auto add_vector = [&](std::int64_t i, __m256 & sum) __attribute__((always_inline)) {
    const std::int64_t left = width - i;
    const __m256i lanes = first_lanes(left < 8 ? left : 8);
    __m256 value = _mm256_maskload_ps(x + i, lanes);
    if constexpr (with_residual) {
      value = _mm256_add_ps(_mm256_maskload_ps(residual + i, lanes), value);
      _mm256_maskstore_ps(residual + i, lanes, value);
    }
    sum = _mm256_fmadd_ps(value, value, sum);
  };
  const auto add_whole_vector = [&](std::int64_t i, __m256 & sum) __attribute__((always_inline)) {
    __m256 value = _mm256_loadu_ps(x + i);
    if constexpr (with_residual) {
      value = _mm256_add_ps(_mm256_loadu_ps(residual + i), value);
      _mm256_storeu_ps(residual + i, value);
    }
    sum = _mm256_fmadd_ps(value, value, sum);
  };
  std::int64_t i = 0;
  for (; i + 32 <= width; i += 32) {
    for (int part = 0; part < 4; ++part) add_whole_vector(i + 8 * part, sums[part]);
  }
  for (int part = 0; i < width; i += 8, ++part) add_vector(i, sums[part]);
  return sum_of_lanes(
      _mm256_add_ps(_mm256_add_ps(sums[0], sums[2]), _mm256_add_ps(sums[1], sums[3])));
}

void second_pass(const float* x, const float* weight, float* y, std::int64_t width, float scale) {
  const __m256 scales = _mm256_set1_ps(scale);
  std::int64_t i = 0;
  for (; i + 8 <= width; i += 8) {
    _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), scales),
                                          _mm256_loadu_ps(weight + i)));
  }
  for (; i < width; ++i) y[i] = x[i] * scale * weight[i];
}

}  // namespace

void rms_norm_row_avx2(const float* x, float* residual, const float* weight, float* y,
                       std::int64_t width, float epsilon) {
  const float sum = residual == nullptr ? first_pass<false>(x, residual, width)
                                        : first_pass<true>(x, residual, width);
  const float mean = sum / static_cast<float>(width);
  const float root = _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + epsilon)));
  second_pass(residual == nullptr ? x : residual, weight, y, width, 1.0f / root);
}

}  // namespace octet
