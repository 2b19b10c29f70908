// Eight elements at a time, rounded as float_to_float8_e4m3 does; what is left of a row by the
// portable kernels. One at a time, rounding took 2 % of the prefill of a small model.
#include <bit>
#include <cstdint>

#include <immintrin.h>

#include "core/float8_e4m3.h"
#include "ops/quantize/kv_codes.h"

namespace octet {
namespace {

constexpr int lanes = 8;

[[gnu::always_inline]] inline __m256 magnitude_of(__m256 x) {
  return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

[[gnu::always_inline]] inline int lanes_set(__m256 mask) {
  return std::popcount(static_cast<unsigned>(_mm256_movemask_ps(mask)));
}

[[gnu::always_inline]] inline float highest(__m256 x) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

// The low bytes of eight lanes.
[[gnu::always_inline]] inline void store_bytes(__m256i lanes_of_bytes, std::uint8_t* to) {
  const __m256i order = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
  const __m256i fours = _mm256_shuffle_epi8(lanes_of_bytes, order);
  const __m128i eight =
      _mm_unpacklo_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), eight);
}

float largest_finite(const float* row, int elements, std::int64_t* non_finite) {
  const __m256 infinity = _mm256_set1_ps(__builtin_inff());
  __m256 largest = _mm256_setzero_ps();
  int i = 0;
  for (; i + lanes <= elements; i += lanes) {
    const __m256 magnitude = magnitude_of(_mm256_loadu_ps(row + i));
    const __m256 finite = _mm256_cmp_ps(magnitude, infinity, _CMP_LT_OQ);  // false for NaN
    largest = _mm256_max_ps(largest, _mm256_and_ps(magnitude, finite));
    *non_finite += lanes - lanes_set(finite);
  }
  const float rest = kv_code_kernels_portable().largest_finite(row + i, elements - i, non_finite);
  const float found = highest(largest);
  return found > rest ? found : rest;
}

[[gnu::always_inline]] inline __m256i e4m3_of(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i magnitude = _mm256_castps_si256(magnitude_of(x));
  // Nearest even at the third bit of the mantissa, and the exponent's bias 127 - 7 less.
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(magnitude, 20), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_add_epi32(_mm256_add_epi32(magnitude, odd), _mm256_set1_epi32(0x7FFFF - (120 << 23)));
  const __m256i normal = _mm256_srli_epi32(rounded, 20);
  // In units of 2^-9, which adding 2^14 puts into the sum's last bit.
  const __m256 aligned = _mm256_add_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(0x1p14f));
  const __m256i subnormal =
      _mm256_sub_epi32(_mm256_castps_si256(aligned), _mm256_castps_si256(_mm256_set1_ps(0x1p14f)));
  const auto above = [&](float least) {
    return _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(std::bit_cast<std::int32_t>(least)));
  };
  // The largest float below 2^-6: integers compare as the magnitudes do.
  __m256i code = _mm256_blendv_epi8(subnormal, normal, above(0x1.fffffep-7f));
  code = _mm256_blendv_epi8(code, _mm256_set1_epi32(0x7E), above(float8_e4m3_max));
  code = _mm256_blendv_epi8(code, _mm256_set1_epi32(0x7F), above(__builtin_inff()));
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
  return _mm256_or_si256(code, sign);
}

void to_fp8(const float* row, int elements, float scale, std::uint8_t* codes,
            KvWriteCounts* counts) {
  const __m256 divisor = _mm256_set1_ps(scale);
  int i = 0;
  for (; i + lanes <= elements; i += lanes) {
    const __m256 x = _mm256_loadu_ps(row + i);
    const __m256 scaled = _mm256_div_ps(x, divisor);
    const __m256 magnitude = magnitude_of(scaled);
    const __m256 saturated = _mm256_cmp_ps(magnitude, _mm256_set1_ps(float8_e4m3_max), _CMP_GT_OQ);
    const __m256 subnormal =
        _mm256_and_ps(_mm256_cmp_ps(magnitude, _mm256_set1_ps(0x1p-6f), _CMP_LT_OQ),
                      _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_NEQ_UQ));
    counts->saturated += lanes_set(saturated);
    counts->subnormal += lanes_set(subnormal);
    store_bytes(e4m3_of(scaled), codes + i);
  }
  kv_code_kernels_portable().to_fp8(row + i, elements - i, scale, codes + i, counts);
}

void to_int8(const float* row, int elements, float scale, std::uint8_t* codes) {
  const __m256 divisor = _mm256_set1_ps(scale);
  const __m256 largest = _mm256_set1_ps(127.0f);
  int i = 0;
  for (; i + lanes <= elements; i += lanes) {
    const __m256 scaled = _mm256_div_ps(_mm256_loadu_ps(row + i), divisor);
    const __m256 number = _mm256_cmp_ps(scaled, scaled, _CMP_ORD_Q);
    const __m256 clamped =
        _mm256_max_ps(_mm256_min_ps(scaled, largest), _mm256_sub_ps(_mm256_setzero_ps(), largest));
    // vcvtps2dq rounds to nearest even.
    store_bytes(_mm256_cvtps_epi32(_mm256_and_ps(clamped, number)), codes + i);
  }
  kv_code_kernels_portable().to_int8(row + i, elements - i, scale, codes + i);
}

}  // namespace

const KvCodeKernels& kv_code_kernels_avx2() {
  static const KvCodeKernels kernels = {
      .largest_finite = largest_finite, .to_fp8 = to_fp8, .to_int8 = to_int8};
  return kernels;
}

}  // namespace octet
