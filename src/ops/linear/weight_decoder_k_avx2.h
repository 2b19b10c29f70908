// Decoders of the K types, whose blocks of 256 elements have sub-scales (see
// weight_decoder_avx2.h). Internal: for *_avx2.cc files alone.
#pragma once

#include "ops/linear/weight_decoder_avx2.h"

namespace octet {
namespace {

// Q4_K and Q5_K: eight groups of 32, each with d S and -dmin M.
struct KScales {
  alignas(32) float scale[8];
  alignas(32) float minimum[8];
};

[[gnu::always_inline]] inline __m256 eight_bytes_to_float(std::uint64_t bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(bytes))));
}

// The 12 bytes after d and dmin hold eight 6-bit scales and eight 6-bit minima: the first four of
// each in the low bits of bytes 0-3 and 4-7; of the last four, the low nibbles in bytes 8-11 and
// the upper two bits on top of bytes 0-3 and 4-7.
[[gnu::always_inline]] inline KScales unpack_k_scales(Bytes block) {
  std::uint32_t a, b, c;
  std::memcpy(&a, block + 4, 4);
  std::memcpy(&b, block + 8, 4);
  std::memcpy(&c, block + 12, 4);
  const std::uint64_t scales_high = (c & 0x0F0F0F0Fu) | ((a >> 2) & 0x30303030u);
  const std::uint64_t minima_high = ((c >> 4) & 0x0F0F0F0Fu) | ((b >> 2) & 0x30303030u);
  const std::uint64_t scales = (a & 0x3F3F3F3Fu) | (scales_high << 32);
  const std::uint64_t minima = (b & 0x3F3F3F3Fu) | (minima_high << 32);
  const __m256 both = broadcast_float16_pair(block);
  const __m256 d = _mm256_mul_ps(_mm256_moveldup_ps(both), _mm256_set1_ps(widening));
  const __m256 negated_dmin = _mm256_xor_ps(_mm256_movehdup_ps(both), _mm256_set1_ps(-0.0f));
  KScales out;
  _mm256_store_ps(out.scale, _mm256_mul_ps(eight_bytes_to_float(scales), d));
  _mm256_store_ps(out.minimum, _mm256_mul_ps(eight_bytes_to_float(minima), negated_dmin));
  return out;
}

// Q4_K and Q5_K keep groups 2 s and 2 s + 1 in the low and high nibbles of 32 bytes.
template <int group>
[[gnu::always_inline]] inline __m256i k_nibbles(Bytes quants, int section) {
  const __m256i bytes = load_32_bytes(quants + 32 * section);
  const __m256i shifted = group == 0 ? bytes : _mm256_srli_epi16(bytes, 4);
  return _mm256_and_si256(shifted, _mm256_set1_epi8(15));
}

struct Q4KDecoder {
  static constexpr bool is_plain = false;
  static constexpr int block_elements = 256;
  static constexpr int block_bytes = 144;
  static constexpr int sections = 4;
  static constexpr int groups = 2;
  using Scales = KScales;
  using Group = __m256i;
  [[gnu::always_inline]] static Scales prepare(Bytes block) { return unpack_k_scales(block); }
  template <int group>
  [[gnu::always_inline]] static Group load(Bytes block, int section) {
    return arrange(k_nibbles<group>(block + 16, section));
  }
  template <int group, int i>
  [[gnu::always_inline]] static __m256 vector(Group quants, const Scales& scales, int section) {
    const int index = 2 * section + group;
    return _mm256_fmadd_ps(widen<i>(quants), _mm256_broadcast_ss(&scales.scale[index]),
                           _mm256_broadcast_ss(&scales.minimum[index]));
  }
};

struct Q5KDecoder : Q4KDecoder {
  static constexpr int block_bytes = 176;
  template <int group>
  [[gnu::always_inline]] static Group load(Bytes block, int section) {
    return arrange(quants<group>(block, section));
  }
  // In memory order.
  template <int group>
  [[gnu::always_inline]] static __m256i quants(Bytes block, int section) {
    const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << (2 * section + group)));
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(load_32_bytes(block + 16), bit), bit);
    const __m256i fifth = _mm256_and_si256(set, _mm256_set1_epi8(16));
    return _mm256_or_si256(k_nibbles<group>(block + 48, section), fifth);
  }
};

// Q6_K: ql[128], qh[64], sixteen int8 sub-scales, d; each sub-scale serves 16 elements.
struct Q6KDecoder {
  static constexpr bool is_plain = false;
  static constexpr int block_elements = 256;
  static constexpr int block_bytes = 210;
  static constexpr int sections = 2;
  static constexpr int groups = 4;
  struct Scales {
    alignas(32) float scale[16];
  };
  using Group = __m256i;
  [[gnu::always_inline]] static Scales prepare(Bytes block) {
    const __m256 d = _mm256_mul_ps(broadcast_float16(block + 208), _mm256_set1_ps(widening));
    Scales out;
    for (int half = 0; half < 2; ++half) {
      const __m128i bytes = load_8_bytes(block + 192 + 8 * half);
      _mm256_store_ps(out.scale + 8 * half,
                      _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), d));
    }
    return out;
  }
  // Group k of section h takes bits 0-3 from the low (k < 2) or high nibbles of
  // ql[64 h + 32 (k % 2) ...] and bits 4-5 from bits 2 k and 2 k + 1 of qh[32 h ...].
  template <int group>
  [[gnu::always_inline]] static Group load(Bytes block, int section) {
    return arrange(_mm256_sub_epi8(unsigned_quants<group>(block, section), _mm256_set1_epi8(32)));
  }
  // In memory order, 32 too large.
  template <int group>
  [[gnu::always_inline]] static __m256i unsigned_quants(Bytes block, int section) {
    const __m256i low_bytes = load_32_bytes(block + 64 * section + 32 * (group % 2));
    const __m256i low = _mm256_and_si256(group < 2 ? low_bytes : _mm256_srli_epi16(low_bytes, 4),
                                         _mm256_set1_epi8(15));
    __m256i high = load_32_bytes(block + 128 + 32 * section);
    if constexpr (group < 2) high = _mm256_slli_epi16(high, 4 - 2 * group);
    if constexpr (group == 3) high = _mm256_srli_epi16(high, 2);
    high = _mm256_and_si256(high, _mm256_set1_epi8(0x30));
    return _mm256_or_si256(low, high);
  }
  template <int group, int i>
  [[gnu::always_inline]] static __m256 vector(Group quants, const Scales& scales, int section) {
    return _mm256_mul_ps(widen<i>(quants),
                         _mm256_broadcast_ss(&scales.scale[8 * section + 2 * group + i / 2]));
  }
};

}  // namespace
}  // namespace octet
