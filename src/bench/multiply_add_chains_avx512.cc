#include <immintrin.h>

#include "bench/cpu_machine.h"

namespace octet {

// Twelve chains: more than latency (4 or 5 cycles) times throughput (2 a cycle), fewer than there
// are registers.
double multiply_add_chains_avx512(std::int64_t rounds, float* sink) {
  constexpr int chains = 12;
  __m512 sums[chains];
  const __m512 factor = _mm512_set1_ps(0.999f);
  const __m512 addend = _mm512_set1_ps(0.001f);
#pragma GCC unroll 12
  for (int i = 0; i < chains; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i) + *sink);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < chains; ++i) sums[i] = _mm512_fmadd_ps(sums[i], factor, addend);
  }
  float lanes[16];
#pragma GCC unroll 12
  for (int i = 0; i < chains; ++i) {
    _mm512_storeu_ps(lanes, sums[i]);
    *sink += lanes[0] + lanes[15];
  }
  return 2.0 * 16 * chains * static_cast<double>(rounds);
}

}  // namespace octet
