#include <immintrin.h>

#include "bench/cpu_machine.h"

namespace octet {

// As the kernels of Arithmetic::int16: products of 32 pairs, which are added two by two to one of
// twelve sums. An empty asm keeps each sum in its register.
double multiply_add_chains_int16_avx512_bf16(std::int64_t rounds, float* sink) {
  constexpr int chains = 12;
  __m512i sums[chains];
  const auto start = static_cast<int>(*sink);
#pragma GCC unroll 12
  for (int i = 0; i < chains; ++i) sums[i] = _mm512_set1_epi32(i + start);
  const __m512i factor = _mm512_set1_epi16(3);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < chains; ++i) {
      sums[i] = _mm512_dpwssd_epi32(sums[i], factor, factor);
      asm volatile("" : "+v"(sums[i]));
    }
  }
  int lanes[16];
#pragma GCC unroll 12
  for (int i = 0; i < chains; ++i) {
    _mm512_storeu_si512(lanes, sums[i]);
    *sink += static_cast<float>(lanes[0] / 2 + lanes[15] / 2);
  }
  return 2.0 * 32 * chains * static_cast<double>(rounds);
}

}  // namespace octet
