// Stored weights to 16-bit integers in registers, and the scales of eight rows of them, for
// Arithmetic::int16. Internal: for *_avx2.cc files alone (internal linkage throughout).
//
// A type has
//   block_elements, block_bytes: of the stored block;
//   sections, groups: a block is so many sections of so many groups of 32 elements;
//   halves: a scale serves 16 elements, not 32; minima: it has minima;
//   even_odd, words<group>(block, section): a group as two vectors of 16 words, of elements 0 to 15
//   and 16 to 31, or, cheaper for what was decoded as bytes, of even and odd elements;
//   offset: what is to be taken from words (by whoever uses them, since that can be done to sums);
//   scales(blocks): those of a block of eight rows, eight in a vector: [32 or 16 elements][row].
// Scales and minima have the bits of read_quants (files/block_quants.h).
//
// What shapes this is how long Zen 3's vector units are busy: 0.25 to 0.5 cycles for what stays in
// a lane of 128 bits, 1 to 1.26 for what crosses (vpmovsxbw of a register, vextracti128, vpermq), 2
// for vphaddd.
#pragma once

#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "ops/linear/weight_decoder_k_avx2.h"
#include "ops/linear/weight_decoder_small_avx2.h"

namespace octet {
namespace {

struct Words {
  __m256i first;
  __m256i second;
};

// A block of each of eight rows.
struct EightBlocks {
  Bytes first;
  std::int64_t stride;
  [[gnu::always_inline]] Bytes of(int row) const { return first + row * stride; }
};

template <int count>
struct EightScales {
  __m256 scale[count];
  __m256 minimum[count];
};

[[gnu::always_inline]] inline std::int32_t load_32_bits(Bytes p) {
  std::int32_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return bits;
}

// 32 bits of memory in all lanes, which the load unit does alone. GCC 12 makes a load and a shuffle
// of _mm_set1_epi32.
[[gnu::always_inline]] inline __m128 broadcast_four(Bytes p) {
  return _mm_broadcast_ss(reinterpret_cast<const float*>(p));
}
[[gnu::always_inline]] inline __m256 broadcast_eight(Bytes p) {
  return _mm256_broadcast_ss(reinterpret_cast<const float*>(p));
}

// The 32 bits at `offset` of each block.
[[gnu::always_inline]] inline __m256i gather_32_bits(const EightBlocks& blocks, int offset) {
  const auto all = [&](int row) { return broadcast_eight(blocks.of(row) + offset); };
  const __m256 r01 = _mm256_blend_ps(all(0), all(1), 0x02);
  const __m256 r23 = _mm256_blend_ps(all(2), all(3), 0x08);
  const __m256 r45 = _mm256_blend_ps(all(4), all(5), 0x20);
  const __m256 r67 = _mm256_blend_ps(all(6), all(7), 0x80);
  return _mm256_castps_si256(
      _mm256_blend_ps(_mm256_blend_ps(r01, r23, 0x0C), _mm256_blend_ps(r45, r67, 0xC0), 0xF0));
}

// The two float16 at `offset` of each block, the first in the low halves of 32 bits.
class Float16Pairs {
 public:
  [[gnu::always_inline]] Float16Pairs(const EightBlocks& blocks, int offset)
      : even_(every_second(blocks, offset, 0)), odd_(every_second(blocks, offset, 1)) {}
  [[gnu::always_inline]] __m256 first() const {
    return _mm256_cvtph_ps(_mm_blend_epi16(even_, _mm_slli_epi32(odd_, 16), 0xAA));
  }
  [[gnu::always_inline]] __m256 second() const {
    return _mm256_cvtph_ps(_mm_blend_epi16(_mm_srli_epi32(even_, 16), odd_, 0xAA));
  }

 private:
  [[gnu::always_inline]] static __m128i every_second(const EightBlocks& blocks, int offset,
                                                     int first) {
    const auto all = [&](int row) { return broadcast_four(blocks.of(first + row) + offset); };
    return _mm_castps_si128(
        _mm_blend_ps(_mm_blend_ps(all(0), all(2), 0x2), _mm_blend_ps(all(4), all(6), 0x8), 0xC));
  }
  __m128i even_;
  __m128i odd_;
};

[[gnu::always_inline]] inline __m256 negated(__m256 value) {
  return _mm256_xor_ps(value, _mm256_set1_ps(-0.0f));
}

[[gnu::always_inline]] inline __m256i zero_extended(Bytes p) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
[[gnu::always_inline]] inline __m256i sign_extended(Bytes p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Even and odd ones of 32 bytes.
[[gnu::always_inline]] inline Words unsigned_bytes(__m256i bytes) {
  return {_mm256_and_si256(bytes, _mm256_set1_epi16(0xFF)), _mm256_srli_epi16(bytes, 8)};
}
[[gnu::always_inline]] inline Words signed_bytes(__m256i bytes) {
  return {_mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), _mm256_srai_epi16(bytes, 8)};
}

// Low nibbles are elements 0 to 15, high ones 16 to 31.
[[gnu::always_inline]] inline Words nibble_words(Bytes p) {
  const __m256i bytes = zero_extended(p);
  return {_mm256_and_si256(bytes, _mm256_set1_epi16(15)), _mm256_srli_epi16(bytes, 4)};
}
[[gnu::always_inline]] inline __m256i nibble_bytes(Bytes p) {
  const __m256i shifts = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
  return _mm256_and_si256(_mm256_srlv_epi32(load_16_bytes_twice(p), shifts), _mm256_set1_epi8(15));
}

// 16 in byte j where bit j of the 32 at p is set: the fifth bits of Q5_0 and Q5_1.
[[gnu::always_inline]] inline __m256i fifth_bits_in_order(Bytes p) {
  const __m256i order = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2,
                                         2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(load_32_bits(p)), order);
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
  return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

// The types of one scale for 32 elements: d.
struct OneScale {
  static constexpr int block_elements = 32;
  static constexpr int sections = 1;
  static constexpr int groups = 1;
  static constexpr bool halves = false;
  static constexpr bool minima = false;
  static constexpr bool even_odd = false;
  static constexpr int offset = 0;
  [[gnu::always_inline]] static EightScales<1> scales(const EightBlocks& blocks) {
    return {{Float16Pairs(blocks, 0).first()}, {}};
  }
};

// And those with a minimum: d, m.
struct ScaleWithMinimum : OneScale {
  static constexpr bool minima = true;
  [[gnu::always_inline]] static EightScales<1> scales(const EightBlocks& blocks) {
    const Float16Pairs both(blocks, 0);
    return {{both.first()}, {both.second()}};
  }
};

struct Q40Words : OneScale {
  static constexpr int block_bytes = 18;
  static constexpr int offset = 8;
  template <int group>
  [[gnu::always_inline]] static Words words(Bytes block, int) {
    return nibble_words(block + 2);
  }
};

struct Q41Words : ScaleWithMinimum {
  static constexpr int block_bytes = 20;
  template <int group>
  [[gnu::always_inline]] static Words words(Bytes block, int) {
    return nibble_words(block + 4);
  }
};

struct Q50Words : OneScale {
  static constexpr int block_bytes = 22;
  static constexpr bool even_odd = true;
  static constexpr int offset = 16;
  template <int group>
  [[gnu::always_inline]] static Words words(Bytes block, int) {
    return unsigned_bytes(_mm256_or_si256(nibble_bytes(block + 6), fifth_bits_in_order(block + 2)));
  }
};

struct Q51Words : ScaleWithMinimum {
  static constexpr int block_bytes = 24;
  static constexpr bool even_odd = true;
  template <int group>
  [[gnu::always_inline]] static Words words(Bytes block, int) {
    return unsigned_bytes(_mm256_or_si256(nibble_bytes(block + 8), fifth_bits_in_order(block + 4)));
  }
};

struct Q80Words : OneScale {
  static constexpr int block_bytes = 34;
  template <int group>
  [[gnu::always_inline]] static Words words(Bytes block, int) {
    return {sign_extended(block + 2), sign_extended(block + 18)};
  }
};

struct Iq4NlWords : OneScale {
  static constexpr int block_bytes = 18;
  static constexpr bool even_odd = true;
  template <int group>
  [[gnu::always_inline]] static Words words(Bytes block, int) {
    return signed_bytes(look_up_iq4(nibble_bytes(block + 2)));
  }
};

struct Mxfp4Words : OneScale {
  static constexpr int block_bytes = 17;
  static constexpr bool even_odd = true;
  template <int group>
  [[gnu::always_inline]] static Words words(Bytes block, int) {
    return signed_bytes(look_up_mxfp4(nibble_bytes(block + 1)));
  }
  // 2^(e - 128); the two least are subnormal.
  [[gnu::always_inline]] static EightScales<1> scales(const EightBlocks& blocks) {
    const __m256i exponents = _mm256_and_si256(gather_32_bits(blocks, 0), _mm256_set1_epi32(0xFF));
    const __m256i one = _mm256_set1_epi32(1);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(exponents, one), 23);
    const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), exponents);
    const __m256i is_normal = _mm256_cmpgt_epi32(exponents, one);
    return {{_mm256_castsi256_ps(_mm256_blendv_epi8(subnormal, normal, is_normal))}, {}};
  }
};

// Four small integers in the bytes of each lane, times `factor`: of elements [4 i ..] of `to`.
template <bool is_signed>
[[gnu::always_inline]] inline void four_products(__m256i bytes, __m256 factor, __m256 to[4]) {
  for (int i = 0; i < 4; ++i) {
    const __m256i on_top = _mm256_slli_epi32(bytes, 24 - 8 * i);
    const __m256i value = is_signed ? _mm256_srai_epi32(on_top, 24) : _mm256_srli_epi32(on_top, 24);
    to[i] = _mm256_mul_ps(_mm256_cvtepi32_ps(value), factor);
  }
}

[[gnu::always_inline]] inline __m256i masked(__m256i lanes, int bits) {
  return _mm256_and_si256(lanes, _mm256_set1_epi32(bits));
}

// Q4_K and Q5_K: eight 6-bit scales and minima; unpack_k_scales says where their bits lie.
struct KWords {
  static constexpr int block_elements = 256;
  static constexpr int sections = 4;
  static constexpr int groups = 2;
  static constexpr bool halves = false;
  static constexpr bool minima = true;
  static constexpr bool even_odd = false;
  static constexpr int offset = 0;
  [[gnu::always_inline]] static EightScales<8> scales(const EightBlocks& blocks) {
    const Float16Pairs both(blocks, 0);
    const __m256 d = both.first();
    const __m256 negated_dmin = negated(both.second());
    const __m256i a = gather_32_bits(blocks, 4);
    const __m256i b = gather_32_bits(blocks, 8);
    const __m256i c = gather_32_bits(blocks, 12);
    const auto upper = [](__m256i low_bits, __m256i high_bits) {
      return _mm256_or_si256(masked(low_bits, 0x0F0F0F0F),
                             masked(_mm256_srli_epi32(high_bits, 2), 0x30303030));
    };
    EightScales<8> out;
    four_products<false>(masked(a, 0x3F3F3F3F), d, out.scale);
    four_products<false>(upper(c, a), d, out.scale + 4);
    four_products<false>(masked(b, 0x3F3F3F3F), negated_dmin, out.minimum);
    four_products<false>(upper(_mm256_srli_epi32(c, 4), b), negated_dmin, out.minimum + 4);
    return out;
  }
};

struct Q4KWords : KWords {
  static constexpr int block_bytes = 144;
  template <int group>
  [[gnu::always_inline]] static Words words(Bytes block, int section) {
    const __m256i first = zero_extended(block + 16 + 32 * section);
    const __m256i second = zero_extended(block + 32 + 32 * section);
    if constexpr (group == 1) return {_mm256_srli_epi16(first, 4), _mm256_srli_epi16(second, 4)};
    const __m256i nibble = _mm256_set1_epi16(15);
    return {_mm256_and_si256(first, nibble), _mm256_and_si256(second, nibble)};
  }
};

struct Q5KWords : KWords {
  static constexpr int block_bytes = 176;
  static constexpr bool even_odd = true;
  template <int group>
  [[gnu::always_inline]] static Words words(Bytes block, int section) {
    return unsigned_bytes(Q5KDecoder::quants<group>(block, section));
  }
};

// The types of 256 elements whose sixteen scales serve 16 each.
struct SixteenScales {
  static constexpr int block_elements = 256;
  static constexpr int sections = 2;
  static constexpr int groups = 4;
  static constexpr bool halves = true;
  static constexpr bool minima = false;
  static constexpr bool even_odd = true;
  static constexpr int offset = 0;
};

struct Q2KWords : SixteenScales {
  static constexpr int block_bytes = 84;
  static constexpr bool minima = true;
  template <int group>
  [[gnu::always_inline]] static Words words(Bytes block, int section) {
    return unsigned_bytes(Q2KDecoder::quants<group>(block, section));
  }
  [[gnu::always_inline]] static EightScales<16> scales(const EightBlocks& blocks) {
    const Float16Pairs both(blocks, 80);
    const __m256 d = both.first();
    const __m256 negated_dmin = negated(both.second());
    EightScales<16> out;
    for (int i = 0; i < 4; ++i) {
      const __m256i bytes = gather_32_bits(blocks, 4 * i);
      four_products<false>(masked(bytes, 0x0F0F0F0F), d, out.scale + 4 * i);
      four_products<false>(masked(_mm256_srli_epi32(bytes, 4), 0x0F0F0F0F), negated_dmin,
                           out.minimum + 4 * i);
    }
    return out;
  }
};

struct Q3KWords : SixteenScales {
  static constexpr int block_bytes = 110;
  template <int group>
  [[gnu::always_inline]] static Words words(Bytes block, int section) {
    return signed_bytes(Q3KDecoder::quants<group>(block, section));
  }
  // Q3KDecoder::prepare says where the bits of a scale lie; 32 is taken from each.
  [[gnu::always_inline]] static EightScales<16> scales(const EightBlocks& blocks) {
    const __m256 d = Float16Pairs(blocks, 106).second();
    const __m256i low[2] = {gather_32_bits(blocks, 96), gather_32_bits(blocks, 100)};
    const __m256i high = gather_32_bits(blocks, 104);
    EightScales<16> out;
    for (int i = 0; i < 4; ++i) {
      const __m256i nibbles = i < 2 ? low[i] : _mm256_srli_epi32(low[i - 2], 4);
      const __m256i two_bits =
          i < 2 ? _mm256_slli_epi32(high, 4 - 2 * i) : _mm256_srli_epi32(high, 2 * i - 4);
      const __m256i bytes =
          _mm256_or_si256(masked(nibbles, 0x0F0F0F0F), masked(two_bits, 0x30303030));
      four_products<true>(_mm256_sub_epi8(bytes, _mm256_set1_epi8(32)), d, out.scale + 4 * i);
    }
    return out;
  }
};

struct Q6KWords : SixteenScales {
  static constexpr int block_bytes = 210;
  static constexpr int offset = 32;
  template <int group>
  [[gnu::always_inline]] static Words words(Bytes block, int section) {
    return unsigned_bytes(Q6KDecoder::unsigned_quants<group>(block, section));
  }
  [[gnu::always_inline]] static EightScales<16> scales(const EightBlocks& blocks) {
    const __m256 d = Float16Pairs(blocks, 206).second();
    EightScales<16> out;
    for (int i = 0; i < 4; ++i) {
      four_products<true>(gather_32_bits(blocks, 192 + 4 * i), d, out.scale + 4 * i);
    }
    return out;
  }
};

// Sub-scale s: nibble s of the four bytes at 4, and two bits at 2 s of the two bytes at 2.
struct Iq4XsWords {
  static constexpr int block_elements = 256;
  static constexpr int block_bytes = 136;
  static constexpr int sections = 8;
  static constexpr int groups = 1;
  static constexpr bool halves = false;
  static constexpr bool minima = false;
  static constexpr bool even_odd = true;
  static constexpr int offset = 0;
  template <int group>
  [[gnu::always_inline]] static Words words(Bytes block, int section) {
    return signed_bytes(look_up_iq4(nibble_bytes(block + 8 + 16 * section)));
  }
  [[gnu::always_inline]] static EightScales<8> scales(const EightBlocks& blocks) {
    const __m256i head = gather_32_bits(blocks, 0);
    const __m256i nibbles = gather_32_bits(blocks, 4);
    const __m256 d = Float16Pairs(blocks, 0).first();
    EightScales<8> out;
    for (int s = 0; s < 8; ++s) {
      const __m256i low = masked(_mm256_srli_epi32(nibbles, 4 * s), 15);
      const __m256i high = masked(_mm256_srli_epi32(head, 16 + 2 * s), 3);
      const __m256i scale =
          _mm256_sub_epi32(_mm256_or_si256(low, _mm256_slli_epi32(high, 4)), _mm256_set1_epi32(32));
      out.scale[s] = _mm256_mul_ps(_mm256_cvtepi32_ps(scale), d);
    }
    return out;
  }
};

// Calls action(Words{}) for the block type `dtype`.
template <class Action>
void with_words(DataType dtype, const Action& action) {
  switch (dtype) {
    case DataType::q4_0:
      return action(Q40Words{});
    case DataType::q4_1:
      return action(Q41Words{});
    case DataType::q5_0:
      return action(Q50Words{});
    case DataType::q5_1:
      return action(Q51Words{});
    case DataType::q8_0:
      return action(Q80Words{});
    case DataType::q2_k:
      return action(Q2KWords{});
    case DataType::q3_k:
      return action(Q3KWords{});
    case DataType::q4_k:
      return action(Q4KWords{});
    case DataType::q5_k:
      return action(Q5KWords{});
    case DataType::q6_k:
      return action(Q6KWords{});
    case DataType::iq4_nl:
      return action(Iq4NlWords{});
    case DataType::iq4_xs:
      return action(Iq4XsWords{});
    case DataType::mxfp4:
      return action(Mxfp4Words{});
    case DataType::float32:
    case DataType::float16:
    case DataType::bfloat16:
    case DataType::float8_e4m3:
      return;  // Arithmetic::float32 multiplies these
  }
}

}  // namespace
}  // namespace octet
