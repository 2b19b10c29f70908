// Partial vectors of eight floats. Internal: for *_avx2.cc files alone (internal linkage
// throughout).
#pragma once

#include <cstdint>

#include <immintrin.h>

namespace octet {
namespace {

// All bits set in the first `count` lanes (0 to 8), for masked loads and stores: a tail then runs
// through the same instructions as whole vectors and gets the same bits.
inline __m256i first_lanes(std::int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// (l0 + l4) + (l2 + l6), then the same of the odd lanes, then their sum.
inline float sum_of_lanes(__m256 value) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(value), _mm256_extractf128_ps(value, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

}  // namespace
}  // namespace octet
