// exp of sixteen floats at once. Internal: for *_avx512*.cc files alone (internal linkage).
#pragma once

#include <immintrin.h>

namespace octet {
namespace {

// The steps of vector_exp in vector_exp_avx2.h: the same bits for every input.
[[gnu::always_inline]] inline __m512 vector_exp_512(__m512 x) {
  const __m512 shift = _mm512_set1_ps(12582912.0f);
  const __m512 shifted = _mm512_fmadd_ps(x, _mm512_set1_ps(0x1.715476p+0f), shift);
  const __m512 n = _mm512_sub_ps(shifted, shift);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e430p-1f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-0x1.05c610p-29f), r);
  __m512 q = _mm512_fmadd_ps(_mm512_set1_ps(0x1.6a23d0p-10f), r, _mm512_set1_ps(0x1.123a20p-7f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.5558f2p-5f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.555492p-3f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.fffffcp-2f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(1.0f));
  const __m512 power = _mm512_fmadd_ps(q, r, _mm512_set1_ps(1.0f));
  const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  const __m512 y = _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(power), exponent));
  // Not-less-or-equal is true for NaN as well, and x + inf is right for both.
  const __mmask16 over = _mm512_cmp_ps_mask(x, _mm512_set1_ps(0x1.62e42ep+6f), _CMP_NLE_UQ);
  const __mmask16 not_under = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-0x1.5d589ep+6f), _CMP_NLT_UQ);
  const __m512 bounded = _mm512_mask_add_ps(y, over, x, _mm512_set1_ps(__builtin_inff()));
  return _mm512_maskz_mov_ps(not_under, bounded);
}

}  // namespace
}  // namespace octet
