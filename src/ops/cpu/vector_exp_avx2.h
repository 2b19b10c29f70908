// exp of eight floats at once. Internal: for *_avx2.cc files alone (everything here has internal
// linkage, so that no other translation unit can pick up AVX2 code).
#pragma once

#include <immintrin.h>

namespace octet {
namespace {

// e^x per lane, in error by at most 1 unit in the last place wherever the result is normal
// (0.89 measured over every float; tests/ops/cpu/exp_array_test.cc).
//   exp(0) and exp(-0) are exactly 1; x < -87.33654 (-inf too) gives exactly 0: results that
//   binary32 would hold as subnormals are flushed; x > 88.72283 gives +inf; NaN stays NaN.
// Lanes do not depend on one another: an element's bits are the same whatever its position.
//
// x = n ln 2 + r with |r| <= ln 2 / 2; e^r = 1 + r + r^2 q(r), q of degree 4 by Remez on the
// relative error (3.1e-9 before rounding); 2^n by adding n to the exponent field.
inline __m256 vector_exp(__m256 x) {
  // Adding 1.5 x 2^23 rounds to an integer and leaves it in the low bits of the sum.
  const __m256 shift = _mm256_set1_ps(12582912.0f);
  const __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(0x1.715476p+0f), shift);
  const __m256 n = _mm256_sub_ps(shifted, shift);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e430p-1f), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-0x1.05c610p-29f), r);
  __m256 q = _mm256_fmadd_ps(_mm256_set1_ps(0x1.6a23d0p-10f), r, _mm256_set1_ps(0x1.123a20p-7f));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0x1.5558f2p-5f));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0x1.555492p-3f));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0x1.fffffcp-2f));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(1.0f));
  const __m256 power = _mm256_fmadd_ps(q, r, _mm256_set1_ps(1.0f));
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  __m256 y = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(power), exponent));
  // Not-less-or-equal is true for NaN as well, and x + inf is right for both.
  const __m256 over = _mm256_cmp_ps(x, _mm256_set1_ps(0x1.62e42ep+6f), _CMP_NLE_UQ);
  const __m256 under = _mm256_cmp_ps(x, _mm256_set1_ps(-0x1.5d589ep+6f), _CMP_LT_OQ);
  y = _mm256_blendv_ps(y, _mm256_add_ps(x, _mm256_set1_ps(__builtin_inff())), over);
  return _mm256_andnot_ps(under, y);
}

}  // namespace
}  // namespace octet
