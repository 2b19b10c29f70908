#include <immintrin.h>

#include "ops/cpu/lanes_avx2.h"
#include "ops/rope/rope_kernels.h"

namespace octet {
namespace {

struct Rotated {
  __m256 low;
  __m256 high;
};

inline Rotated rotate_vector(__m256 a, __m256 b, __m256 cosine, __m256 sine) {
  return {_mm256_fmsub_ps(a, cosine, _mm256_mul_ps(b, sine)),
          _mm256_fmadd_ps(b, cosine, _mm256_mul_ps(a, sine))};
}

void rotate(const float* a, const float* b, const float* cosines, const float* sines, int pairs,
            float* out_low, float* out_high) {
  int i = 0;
  for (; i + 8 <= pairs; i += 8) {
    const Rotated out = rotate_vector(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i),
                                      _mm256_loadu_ps(cosines + i), _mm256_loadu_ps(sines + i));
    _mm256_storeu_ps(out_low + i, out.low);
    _mm256_storeu_ps(out_high + i, out.high);
  }
  if (i < pairs) {
    const __m256i lanes = first_lanes(pairs - i);
    const Rotated out =
        rotate_vector(_mm256_maskload_ps(a + i, lanes), _mm256_maskload_ps(b + i, lanes),
                      _mm256_maskload_ps(cosines + i, lanes), _mm256_maskload_ps(sines + i, lanes));
    _mm256_maskstore_ps(out_low + i, lanes, out.low);
    _mm256_maskstore_ps(out_high + i, lanes, out.high);
  }
}

void split(const float* x, int pairs, float* a, float* b) {
  int i = 0;
  for (; i + 8 <= pairs; i += 8) {
    const __m256 first = _mm256_loadu_ps(x + 2 * i);
    const __m256 second = _mm256_loadu_ps(x + 2 * i + 8);
    // Elements 0 1 | 4 5 of both, then in order: the shuffle works within halves.
    const __m256 even = _mm256_shuffle_ps(first, second, 0x88);
    const __m256 odd = _mm256_shuffle_ps(first, second, 0xDD);
    const auto in_order = [](__m256 halves) {
      return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(halves), 0xD8));
    };
    _mm256_storeu_ps(a + i, in_order(even));
    _mm256_storeu_ps(b + i, in_order(odd));
  }
  for (; i < pairs; ++i) {
    a[i] = x[2 * i];
    b[i] = x[2 * i + 1];
  }
}

constexpr RopeKernels kernels = {.rotate = rotate, .split = split};

}  // namespace

const RopeKernels& rope_kernels_avx2() { return kernels; }

}  // namespace octet
