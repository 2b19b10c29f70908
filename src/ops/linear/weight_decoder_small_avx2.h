// Decoders of the types of two and three bits, and of those whose four bits choose from a table
// (see weight_decoder_avx2.h). Internal: for *_avx2.cc files alone.
#pragma once

#include <cstdint>
#include <cstring>

#include "ops/linear/weight_decoder_avx2.h"

namespace octet {
namespace {

// Two bits of each of the 32 bytes at p, in memory order: those of the elements of `group`.
template <int group>
[[gnu::always_inline]] inline __m256i two_bits_of_group(Bytes p) {
  const __m256i bytes = load_32_bytes(p);
  const __m256i shifted = group == 0 ? bytes : _mm256_srli_epi16(bytes, 2 * group);
  return _mm256_and_si256(shifted, _mm256_set1_epi8(3));
}

[[gnu::always_inline]] inline __m256 eight_signed_bytes_to_float(__m128i bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

// Q2_K: sixteen bytes of a 4-bit scale and a 4-bit minimum, qs[64], d, dmin; each pair serves 16
// elements.
struct Q2KDecoder {
  static constexpr bool is_plain = false;
  static constexpr int block_elements = 256;
  static constexpr int block_bytes = 84;
  static constexpr int sections = 2;
  static constexpr int groups = 4;
  struct Scales {
    alignas(32) float scale[16];
    alignas(32) float minimum[16];
  };
  using Group = __m256i;
  [[gnu::always_inline]] static Scales prepare(Bytes block) {
    const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block));
    const __m128i nibble = _mm_set1_epi8(15);
    const __m128i scales = _mm_and_si128(packed, nibble);
    const __m128i minima = _mm_and_si128(_mm_srli_epi16(packed, 4), nibble);
    const __m256 d = _mm256_mul_ps(broadcast_float16(block + 80), _mm256_set1_ps(widening));
    const __m256 negated_dmin = _mm256_xor_ps(broadcast_float16(block + 82), _mm256_set1_ps(-0.0f));
    Scales out;
    store(out.scale, scales, d);
    store(out.minimum, minima, negated_dmin);
    return out;
  }
  template <int group>
  [[gnu::always_inline]] static Group load(Bytes block, int section) {
    return arrange(quants<group>(block, section));
  }
  // In memory order.
  template <int group>
  [[gnu::always_inline]] static __m256i quants(Bytes block, int section) {
    return two_bits_of_group<group>(block + 16 + 32 * section);
  }
  template <int group, int i>
  [[gnu::always_inline]] static __m256 vector(Group quants, const Scales& scales, int section) {
    const int index = 8 * section + 2 * group + i / 2;
    return _mm256_fmadd_ps(widen<i>(quants), _mm256_broadcast_ss(&scales.scale[index]),
                           _mm256_broadcast_ss(&scales.minimum[index]));
  }

 private:
  [[gnu::always_inline]] static void store(float* to, __m128i bytes, __m256 factor) {
    _mm256_store_ps(to, _mm256_mul_ps(eight_signed_bytes_to_float(bytes), factor));
    _mm256_store_ps(to + 8,
                    _mm256_mul_ps(eight_signed_bytes_to_float(_mm_srli_si128(bytes, 8)), factor));
  }
};

// Q3_K: hmask[32], qs[64], sixteen 6-bit sub-scales in 12 bytes, d; each sub-scale serves 16
// elements. Bit 4 h + k of hmask is clear where group k of section h takes 4 away.
struct Q3KDecoder {
  static constexpr bool is_plain = false;
  static constexpr int block_elements = 256;
  static constexpr int block_bytes = 110;
  static constexpr int sections = 2;
  static constexpr int groups = 4;
  struct Scales {
    alignas(32) float scale[16];
  };
  using Group = __m256i;
  // Sub-scale s: its low four bits are a nibble of the first eight bytes (the low ones for s < 8),
  // its upper two bits lie at 2 (s / 4) of byte 8 + s % 4.
  [[gnu::always_inline]] static Scales prepare(Bytes block) {
    std::uint64_t low;
    std::uint32_t high;
    std::memcpy(&low, block + 96, 8);
    std::memcpy(&high, block + 104, 4);
    constexpr std::uint64_t nibbles = 0x0F0F0F0F0F0F0F0Fu;
    const std::uint64_t first = (low & nibbles) | upper_bits(high, high >> 2);
    const std::uint64_t second = ((low >> 4) & nibbles) | upper_bits(high >> 4, high >> 6);
    const __m128i unsigned_scales =
        _mm_set_epi64x(static_cast<long long>(second), static_cast<long long>(first));
    const __m128i scales = _mm_sub_epi8(unsigned_scales, _mm_set1_epi8(32));
    const __m256 d = _mm256_mul_ps(broadcast_float16(block + 108), _mm256_set1_ps(widening));
    Scales out;
    _mm256_store_ps(out.scale, _mm256_mul_ps(eight_signed_bytes_to_float(scales), d));
    _mm256_store_ps(out.scale + 8,
                    _mm256_mul_ps(eight_signed_bytes_to_float(_mm_srli_si128(scales, 8)), d));
    return out;
  }
  template <int group>
  [[gnu::always_inline]] static Group load(Bytes block, int section) {
    return arrange(quants<group>(block, section));
  }
  // In memory order.
  template <int group>
  [[gnu::always_inline]] static __m256i quants(Bytes block, int section) {
    const __m256i low = two_bits_of_group<group>(block + 32 + 32 * section);
    const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << (4 * section + group)));
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(load_32_bytes(block), bit), bit);
    return _mm256_sub_epi8(low, _mm256_andnot_si256(set, _mm256_set1_epi8(4)));
  }
  template <int group, int i>
  [[gnu::always_inline]] static __m256 vector(Group quants, const Scales& scales, int section) {
    return _mm256_mul_ps(widen<i>(quants),
                         _mm256_broadcast_ss(&scales.scale[8 * section + 2 * group + i / 2]));
  }

 private:
  // Bits 0 and 1 of the bytes of `a`, then of `b`, as bits 4 and 5 of eight bytes.
  [[gnu::always_inline]] static std::uint64_t upper_bits(std::uint32_t a, std::uint32_t b) {
    constexpr std::uint32_t bits = 0x03030303u;
    const std::uint64_t both = (a & bits) | static_cast<std::uint64_t>(b & bits) << 32;
    return both << 4;
  }
};

// The tables' values at 32 indices of four bits.
[[gnu::always_inline]] inline __m256i look_up_iq4(__m256i nibbles) {
  const __m128i values =
      _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), nibbles);
}
[[gnu::always_inline]] inline __m256i look_up_mxfp4(__m256i nibbles) {
  const __m128i values = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), nibbles);
}

struct Iq4NlDecoder : SymmetricDecoder {
  static constexpr int block_bytes = 18;
  template <int group>
  [[gnu::always_inline]] static Group load(Bytes block, int) {
    return look_up_iq4(split_nibbles(block + 2));
  }
};

// IQ4_XS: d, the upper two bits of eight sub-scales, their lower four bits, qs[128]; each sub-scale
// serves 32 elements.
struct Iq4XsDecoder {
  static constexpr bool is_plain = false;
  static constexpr int block_elements = 256;
  static constexpr int block_bytes = 136;
  static constexpr int sections = 8;
  static constexpr int groups = 1;
  struct Scales {
    alignas(32) float scale[8];
  };
  using Group = __m256i;
  [[gnu::always_inline]] static Scales prepare(Bytes block) {
    std::uint16_t high;
    std::int32_t low;
    std::memcpy(&high, block + 2, 2);
    std::memcpy(&low, block + 4, 4);
    const __m256i low_bits = _mm256_and_si256(
        _mm256_srlv_epi32(_mm256_set1_epi32(low), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28)),
        _mm256_set1_epi32(15));
    const __m256i high_bits = _mm256_and_si256(
        _mm256_srlv_epi32(_mm256_set1_epi32(high), _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14)),
        _mm256_set1_epi32(3));
    const __m256i scales = _mm256_sub_epi32(
        _mm256_or_si256(low_bits, _mm256_slli_epi32(high_bits, 4)), _mm256_set1_epi32(32));
    const __m256 d = _mm256_mul_ps(broadcast_float16(block), _mm256_set1_ps(widening));
    Scales out;
    _mm256_store_ps(out.scale, _mm256_mul_ps(_mm256_cvtepi32_ps(scales), d));
    return out;
  }
  template <int group>
  [[gnu::always_inline]] static Group load(Bytes block, int section) {
    return look_up_iq4(split_nibbles(block + 8 + 16 * section));
  }
  template <int group, int i>
  [[gnu::always_inline]] static __m256 vector(Group quants, const Scales& scales, int section) {
    return _mm256_mul_ps(widen<i>(quants), _mm256_broadcast_ss(&scales.scale[section]));
  }
};

// MXFP4: an exponent e, qs[16]; 2^(e - 128) times twice an e2m1 value. The least scales are
// subnormal, so that they cannot take in the 2^-24 of widening.
struct Mxfp4Decoder : SymmetricDecoder {
  static constexpr int block_bytes = 17;
  [[gnu::always_inline]] static Scales prepare(Bytes block) {
    const std::uint32_t exponent = block[0];
    const std::uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
    return _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(bits)));
  }
  template <int group>
  [[gnu::always_inline]] static Group load(Bytes block, int) {
    return look_up_mxfp4(split_nibbles(block + 1));
  }
  template <int group, int i>
  [[gnu::always_inline]] static __m256 vector(Group quants, const Scales& scale, int) {
    return _mm256_mul_ps(_mm256_mul_ps(widen<i>(quants), _mm256_set1_ps(widening)), scale);
  }
};

}  // namespace
}  // namespace octet
