#include <immintrin.h>

#include "ops/activation/swiglu_kernels.h"
#include "ops/cpu/lanes_avx2.h"
#include "ops/cpu/vector_exp_avx2.h"

namespace octet {
namespace {

inline __m256 swiglu_vector(__m256 gate, __m256 up) {
  const __m256 negated = _mm256_xor_ps(gate, _mm256_set1_ps(-0.0f));
  const __m256 denominator = _mm256_add_ps(_mm256_set1_ps(1.0f), vector_exp(negated));
  return _mm256_mul_ps(_mm256_div_ps(gate, denominator), up);
}

}  // namespace

void swiglu_range_avx2(const float* gate, const float* up, float* y, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(y + i, swiglu_vector(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
  }
  if (i < count) {
    const __m256i lanes = first_lanes(count - i);
    _mm256_maskstore_ps(
        y + i, lanes,
        swiglu_vector(_mm256_maskload_ps(gate + i, lanes), _mm256_maskload_ps(up + i, lanes)));
  }
}

}  // namespace octet
