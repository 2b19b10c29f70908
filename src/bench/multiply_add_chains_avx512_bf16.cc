#include <immintrin.h>

#include "bench/cpu_machine.h"

namespace octet {

// Twelve chains: more than latency (4 or 5 cycles) times throughput (2 a cycle), fewer than there
// are registers.
double multiply_add_chains_avx512_bf16(std::int64_t rounds, float* sink) {
  constexpr int chains = 12;
  __m512 sums[chains];
  const __m512bh factor = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f));
#pragma GCC unroll 12
  for (int i = 0; i < chains; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i) + *sink);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < chains; ++i) {
      sums[i] = _mm512_dpbf16_ps(sums[i], factor, factor);
      asm volatile("" : "+v"(sums[i]));  // in place: GCC 12 would copy each before and after
    }
  }
  float lanes[16];
#pragma GCC unroll 12
  for (int i = 0; i < chains; ++i) {
    _mm512_storeu_ps(lanes, sums[i]);
    *sink += lanes[0] + lanes[15];
  }
  return 2.0 * 32 * chains * static_cast<double>(rounds);
}

}  // namespace octet
