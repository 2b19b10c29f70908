#include <immintrin.h>

#include "bench/cpu_machine.h"

namespace octet {

// As the kernels of Arithmetic::int16: a product of sixteen pairs, which are added two by two, and
// an addition to one of ten sums. An empty asm keeps the product in the loop, though its factors do
// not change, and each sum in its register.
double multiply_add_chains_int16_avx2(std::int64_t rounds, float* sink) {
  constexpr int chains = 10;
  __m256i sums[chains];
  const auto start = static_cast<int>(*sink);
#pragma GCC unroll 10
  for (int i = 0; i < chains; ++i) sums[i] = _mm256_set1_epi32(i + start);
  __m256i factor = _mm256_set1_epi16(3);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 10
    for (int i = 0; i < chains; ++i) {
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(factor, factor));
      asm volatile("" : "+x"(factor), "+x"(sums[i]));
    }
  }
  int lanes[8];
#pragma GCC unroll 10
  for (int i = 0; i < chains; ++i) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), sums[i]);
    *sink += static_cast<float>(lanes[0] / 2 + lanes[7] / 2);
  }
  return 2.0 * 16 * chains * static_cast<double>(rounds);
}

}  // namespace octet
