// Stored weights to float32 in registers. Internal: for *_avx2.cc files alone (internal linkage
// throughout).
//
// Every decoder gives exactly the float32 that the format's formula defines (files/block_decode.h,
// finite scales): a float16 scale has 11 significant bits, sub-scales at most 7 and quants at most
// 7, so that scale times quant is exact in binary32 (at most 24 bits), and adding the minimum
// rounds once, fused or not.
//
// A decoder has
//   is_plain: float elements, not blocks of quants (K then need not be a multiple of 32);
//   block_elements, block_bytes: of the stored block (of 32 elements for the plain types);
//   sections, groups: a block is so many sections of so many groups of 32 elements;
//   Scales, prepare(block): what the groups of a block share;
//   Group, load<group>(block, section): what the vectors of a group share (its quants, or where it
//   is);
//   vector<group, i>(quants, scales, section): elements 8 i to 8 i + 7 of the group.
// Groups are template arguments so that shifts are constants; sections are a loop.
#pragma once

#include <cstdint>
#include <cstring>

#include <immintrin.h>

namespace octet {
namespace {

using Bytes = const unsigned char*;

[[gnu::always_inline]] inline __m256i load_32_bytes(Bytes p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
[[gnu::always_inline]] inline __m128i load_8_bytes(Bytes p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}
// The same 16 bytes in both halves; the load unit does the copying.
[[gnu::always_inline]] inline __m256i load_16_bytes_twice(Bytes p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Groups of quants are "arranged": the low half of the vector holds elements 0-3, 8-11, 16-19,
// 24-27, the high half 4-7, 12-15, 20-23, 28-31. Then one in-lane byte shuffle widens eight
// elements in order (vpmovsx would cross the halves). It puts each byte on top of its 32 bits,
// which extends the sign for nothing and multiplies by 2^24; scales hold the 2^-24.
template <int i>
[[gnu::always_inline]] inline __m256 widen(__m256i arranged) {
  constexpr char a = 4 * i;
  constexpr char b = a + 1;
  constexpr char c = a + 2;
  constexpr char d = a + 3;
  const __m256i order =
      _mm256_setr_epi8(-1, -1, -1, a, -1, -1, -1, b, -1, -1, -1, c, -1, -1, -1, d, -1, -1, -1, a,
                       -1, -1, -1, b, -1, -1, -1, c, -1, -1, -1, d);
  return _mm256_cvtepi32_ps(_mm256_shuffle_epi8(arranged, order));
}

constexpr float widening = 0x1p-24f;

// 32 bytes in memory order, arranged.
[[gnu::always_inline]] inline __m256i arrange(__m256i bytes) {
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
}

// Nibbles of Q4_0, Q4_1, Q5_0 and Q5_1 (low ones are elements 0-15, high ones 16-31), arranged.
[[gnu::always_inline]] inline __m256i split_nibbles(Bytes p) {
  const __m256i order = _mm256_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11, 4, 5,
                                         6, 7, 12, 13, 14, 15, 4, 5, 6, 7, 12, 13, 14, 15);
  const __m256i bytes = _mm256_shuffle_epi8(load_16_bytes_twice(p), order);
  const __m256i shifts = _mm256_setr_epi32(0, 0, 4, 4, 0, 0, 4, 4);
  return _mm256_and_si256(_mm256_srlv_epi32(bytes, shifts), _mm256_set1_epi8(15));
}

// Bit j of the 32-bit field at p as 16 in byte j, arranged: the fifth bits of Q5_0 and Q5_1.
[[gnu::always_inline]] inline __m256i fifth_bits(Bytes p) {
  std::int32_t field;
  std::memcpy(&field, p, sizeof(field));
  const __m256i order = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 0, 0, 0, 0,
                                         1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  const __m256i bit = _mm256_setr_epi32(
      0x08040201, 0x08040201, 0x08040201, 0x08040201, static_cast<int>(0x80402010u),
      static_cast<int>(0x80402010u), static_cast<int>(0x80402010u), static_cast<int>(0x80402010u));
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(field), order);
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
  return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

// One float16 in all lanes.
[[gnu::always_inline]] inline __m256 broadcast_float16(Bytes p) {
  std::int16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return _mm256_cvtph_ps(_mm_set1_epi16(bits));
}

// Two adjacent float16: the first in the even lanes, the second in the odd ones.
[[gnu::always_inline]] inline __m256 broadcast_float16_pair(Bytes p) {
  std::int32_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return _mm256_cvtph_ps(_mm_set1_epi32(bits));
}

struct NoScales {};

// The plain types decode straight from memory.
struct Float32Decoder {
  static constexpr bool is_plain = true;
  static constexpr int block_elements = 32;
  static constexpr int block_bytes = 128;
  static constexpr int sections = 1;
  static constexpr int groups = 1;
  using Scales = NoScales;
  using Group = Bytes;
  [[gnu::always_inline]] static Scales prepare(Bytes) { return {}; }
  template <int group>
  [[gnu::always_inline]] static Group load(Bytes block, int) {
    return block;
  }
  template <int group, int i>
  [[gnu::always_inline]] static __m256 vector(Group block, const Scales&, int) {
    return _mm256_castsi256_ps(load_32_bytes(block + 32 * i));
  }
};

struct Float16Decoder : Float32Decoder {
  static constexpr int block_bytes = 64;
  template <int group, int i>
  [[gnu::always_inline]] static __m256 vector(Group block, const Scales&, int) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 16 * i)));
  }
};

struct Bfloat16Decoder : Float32Decoder {
  static constexpr int block_bytes = 64;
  template <int group, int i>
  [[gnu::always_inline]] static __m256 vector(Group block, const Scales&, int) {
    const __m256i upper =
        _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7, -1, -1, 8, 9, -1,
                         -1, 10, 11, -1, -1, 12, 13, -1, -1, 14, 15);
    return _mm256_castsi256_ps(_mm256_shuffle_epi8(load_16_bytes_twice(block + 16 * i), upper));
  }
};

// Q4_0 and Q5_0: d q with a signed q.
struct SymmetricDecoder {
  static constexpr bool is_plain = false;
  static constexpr int block_elements = 32;
  static constexpr int sections = 1;
  static constexpr int groups = 1;
  using Scales = __m256;
  using Group = __m256i;
  [[gnu::always_inline]] static Scales prepare(Bytes block) {
    return _mm256_mul_ps(broadcast_float16(block), _mm256_set1_ps(widening));
  }
  template <int group, int i>
  [[gnu::always_inline]] static __m256 vector(Group quants, const Scales& scale, int) {
    return _mm256_mul_ps(widen<i>(quants), scale);
  }
};

struct Q40Decoder : SymmetricDecoder {
  static constexpr int block_bytes = 18;
  template <int group>
  [[gnu::always_inline]] static Group load(Bytes block, int) {
    return _mm256_sub_epi8(split_nibbles(block + 2), _mm256_set1_epi8(8));
  }
};

struct Q50Decoder : SymmetricDecoder {
  static constexpr int block_bytes = 22;
  template <int group>
  [[gnu::always_inline]] static Group load(Bytes block, int) {
    const __m256i quants = _mm256_or_si256(split_nibbles(block + 6), fifth_bits(block + 2));
    return _mm256_sub_epi8(quants, _mm256_set1_epi8(16));
  }
};

// Eight bytes of memory widen in one operation, so that nothing need be arranged.
struct Q80Decoder : Float32Decoder {
  static constexpr bool is_plain = false;
  static constexpr int block_bytes = 34;
  using Scales = __m256;
  [[gnu::always_inline]] static Scales prepare(Bytes block) { return broadcast_float16(block); }
  template <int group, int i>
  [[gnu::always_inline]] static __m256 vector(Group block, const Scales& scale, int) {
    const __m256i quants = _mm256_cvtepi8_epi32(load_8_bytes(block + 2 + 8 * i));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(quants), scale);
  }
};

// Q4_1 and Q5_1: d q + m.
struct ScaleAndMinimum {
  __m256 scale;
  __m256 minimum;
};

struct Q41Decoder : Float32Decoder {
  static constexpr bool is_plain = false;
  static constexpr int block_bytes = 20;
  using Scales = ScaleAndMinimum;
  [[gnu::always_inline]] static Scales prepare(Bytes block) {
    const __m256 both = broadcast_float16_pair(block);
    return {_mm256_moveldup_ps(both), _mm256_movehdup_ps(both)};
  }
  template <int group, int i>
  [[gnu::always_inline]] static __m256 vector(Group block, const Scales& scales, int) {
    const __m256i bytes = _mm256_cvtepu8_epi32(load_8_bytes(block + 4 + 8 * (i % 2)));
    const __m256i quants =
        i < 2 ? _mm256_and_si256(bytes, _mm256_set1_epi32(15)) : _mm256_srli_epi32(bytes, 4);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(quants), scales.scale, scales.minimum);
  }
};

struct Q51Decoder : SymmetricDecoder {
  static constexpr int block_bytes = 24;
  using Scales = ScaleAndMinimum;
  [[gnu::always_inline]] static Scales prepare(Bytes block) {
    const ScaleAndMinimum scales = Q41Decoder::prepare(block);
    return {_mm256_mul_ps(scales.scale, _mm256_set1_ps(widening)), scales.minimum};
  }
  template <int group>
  [[gnu::always_inline]] static Group load(Bytes block, int) {
    return _mm256_or_si256(split_nibbles(block + 8), fifth_bits(block + 4));
  }
  template <int group, int i>
  [[gnu::always_inline]] static __m256 vector(Group quants, const Scales& scales, int) {
    return _mm256_fmadd_ps(widen<i>(quants), scales.scale, scales.minimum);
  }
};

}  // namespace
}  // namespace octet
