// Stored weights to float32, 32 consecutive elements (four vectors) at a time. Internal: for
// *_avx2.cc files alone (internal linkage throughout).
//
// Every decoder gives exactly the float32 that the format's formula defines
// (src/files/block_decode.h): a float16 scale has 11 significant bits, sub-scales at most 7 and
// quants at most 6, so that scale times quant is exact in binary32 (at most 24 bits), and adding
// the minimum rounds once, fused or not. An offset such as Q4_0's -8 therefore becomes the addend
// of a fused multiply-add at no cost: d q - 8 d is exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "core/data_type.h"

namespace octet {
namespace {

using Bytes = const unsigned char*;

[[gnu::always_inline]] inline __m256i load_32_bytes(Bytes p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
// The same 16 bytes in both halves; the load unit does the copying.
[[gnu::always_inline]] inline __m256i load_16_bytes_twice(Bytes p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Bytes "arranged for spreading": the low half of the vector holds elements 0-3, 8-11, 16-19,
// 24-27, the high half 4-7, 12-15, 20-23, 28-31. Then one in-lane byte shuffle per eight elements
// widens them to 32 bits in order (vpmovzx would cross the halves and takes two operations on Zen).
[[gnu::always_inline]] inline void spread(__m256i arranged, __m256 out[4]) {
  const __m256i widen =
      _mm256_setr_epi8(0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1, 0, -1, -1, -1, 1,
                       -1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1);
  const __m256i step = _mm256_set1_epi32(4);
  __m256i index = widen;
  out[0] = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(arranged, index));
  index = _mm256_add_epi32(index, step);
  out[1] = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(arranged, index));
  index = _mm256_add_epi32(index, step);
  out[2] = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(arranged, index));
  index = _mm256_add_epi32(index, step);
  out[3] = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(arranged, index));
}

// 32 bytes in memory order, arranged for spreading.
[[gnu::always_inline]] inline __m256i arrange(__m256i bytes) {
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
}

// Nibbles of Q4_0 and Q4_1, as floats in order: low ones are elements 0-15, high ones 16-31.
[[gnu::always_inline]] inline void nibbles_to_floats(Bytes p, __m256 out[4]) {
  const __m256i first =
      _mm256_setr_epi8(0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1, 4, -1, -1, -1, 5,
                       -1, -1, -1, 6, -1, -1, -1, 7, -1, -1, -1);
  const __m256i second =
      _mm256_setr_epi8(8, -1, -1, -1, 9, -1, -1, -1, 10, -1, -1, -1, 11, -1, -1, -1, 12, -1, -1, -1,
                       13, -1, -1, -1, 14, -1, -1, -1, 15, -1, -1, -1);
  const __m256i low = _mm256_set1_epi32(15);
  const __m256i bytes = load_16_bytes_twice(p);
  const __m256i a = _mm256_shuffle_epi8(bytes, first);
  const __m256i b = _mm256_shuffle_epi8(bytes, second);
  out[0] = _mm256_cvtepi32_ps(_mm256_and_si256(a, low));
  out[1] = _mm256_cvtepi32_ps(_mm256_and_si256(b, low));
  out[2] = _mm256_cvtepi32_ps(_mm256_srli_epi32(a, 4));
  out[3] = _mm256_cvtepi32_ps(_mm256_srli_epi32(b, 4));
}

// Nibbles of Q5_0 and Q5_1 (low ones are elements 0-15, high ones 16-31), arranged.
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

[[gnu::always_inline]] inline void scale_all(__m256 w[4], __m256 scale, __m256 addend) {
  w[0] = _mm256_fmadd_ps(w[0], scale, addend);
  w[1] = _mm256_fmadd_ps(w[1], scale, addend);
  w[2] = _mm256_fmadd_ps(w[2], scale, addend);
  w[3] = _mm256_fmadd_ps(w[3], scale, addend);
}

// A decoder has
//   block_elements, block_bytes: of the stored block (of 32 elements for the plain types);
//   sections, groups: a block is so many sections of so many groups of 32 elements;
//   Scales, prepare(block): what the groups of a block share;
//   decode<group>(block, scales, section, w): the elements of one group.
// The group is a template argument so that shifts are constants; sections are a loop.
struct NoScales {};

struct Float32Decoder {
  static constexpr bool is_plain = true;
  static constexpr int block_elements = 32;
  static constexpr int block_bytes = 128;
  static constexpr int sections = 1;
  static constexpr int groups = 1;
  using Scales = NoScales;
  [[gnu::always_inline]] static Scales prepare(Bytes) { return {}; }
  template <int group>
  [[gnu::always_inline]] static void decode(Bytes block, const Scales&, int, __m256 w[4]) {
    for (int i = 0; i < 4; ++i) w[i] = _mm256_castsi256_ps(load_32_bytes(block + 32 * i));
  }
};

struct Float16Decoder {
  static constexpr bool is_plain = true;
  static constexpr int block_elements = 32;
  static constexpr int block_bytes = 64;
  static constexpr int sections = 1;
  static constexpr int groups = 1;
  using Scales = NoScales;
  [[gnu::always_inline]] static Scales prepare(Bytes) { return {}; }
  template <int group>
  [[gnu::always_inline]] static void decode(Bytes block, const Scales&, int, __m256 w[4]) {
    for (int i = 0; i < 4; ++i) {
      w[i] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 16 * i)));
    }
  }
};

struct Bfloat16Decoder {
  static constexpr bool is_plain = true;
  static constexpr int block_elements = 32;
  static constexpr int block_bytes = 64;
  static constexpr int sections = 1;
  static constexpr int groups = 1;
  using Scales = NoScales;
  [[gnu::always_inline]] static Scales prepare(Bytes) { return {}; }
  template <int group>
  [[gnu::always_inline]] static void decode(Bytes block, const Scales&, int, __m256 w[4]) {
    const __m256i upper =
        _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7, -1, -1, 8, 9, -1,
                         -1, 10, 11, -1, -1, 12, 13, -1, -1, 14, 15);
    for (int i = 0; i < 4; ++i) {
      w[i] = _mm256_castsi256_ps(_mm256_shuffle_epi8(load_16_bytes_twice(block + 16 * i), upper));
    }
  }
};

// Q4_0 and Q5_0: d (q - offset).  Q4_1 and Q5_1: d q + m.
struct SymmetricScales {
  __m256 scale;
  __m256 addend;
};

struct Q40Decoder {
  static constexpr bool is_plain = false;
  static constexpr int block_elements = 32;
  static constexpr int block_bytes = 18;
  static constexpr int sections = 1;
  static constexpr int groups = 1;
  using Scales = SymmetricScales;
  [[gnu::always_inline]] static Scales prepare(Bytes block) {
    const __m256 d = broadcast_float16(block);
    return {d, _mm256_mul_ps(d, _mm256_set1_ps(-8.0f))};
  }
  template <int group>
  [[gnu::always_inline]] static void decode(Bytes block, const Scales& scales, int, __m256 w[4]) {
    nibbles_to_floats(block + 2, w);
    scale_all(w, scales.scale, scales.addend);
  }
};

struct Q41Decoder {
  static constexpr bool is_plain = false;
  static constexpr int block_elements = 32;
  static constexpr int block_bytes = 20;
  static constexpr int sections = 1;
  static constexpr int groups = 1;
  using Scales = SymmetricScales;
  [[gnu::always_inline]] static Scales prepare(Bytes block) {
    const __m256 both = broadcast_float16_pair(block);
    return {_mm256_moveldup_ps(both), _mm256_movehdup_ps(both)};
  }
  template <int group>
  [[gnu::always_inline]] static void decode(Bytes block, const Scales& scales, int, __m256 w[4]) {
    nibbles_to_floats(block + 4, w);
    scale_all(w, scales.scale, scales.addend);
  }
};

struct Q50Decoder {
  static constexpr bool is_plain = false;
  static constexpr int block_elements = 32;
  static constexpr int block_bytes = 22;
  static constexpr int sections = 1;
  static constexpr int groups = 1;
  using Scales = SymmetricScales;
  [[gnu::always_inline]] static Scales prepare(Bytes block) {
    const __m256 d = broadcast_float16(block);
    return {d, _mm256_mul_ps(d, _mm256_set1_ps(-16.0f))};
  }
  template <int group>
  [[gnu::always_inline]] static void decode(Bytes block, const Scales& scales, int, __m256 w[4]) {
    spread(_mm256_or_si256(split_nibbles(block + 6), fifth_bits(block + 2)), w);
    scale_all(w, scales.scale, scales.addend);
  }
};

struct Q51Decoder {
  static constexpr bool is_plain = false;
  static constexpr int block_elements = 32;
  static constexpr int block_bytes = 24;
  static constexpr int sections = 1;
  static constexpr int groups = 1;
  using Scales = SymmetricScales;
  [[gnu::always_inline]] static Scales prepare(Bytes block) { return Q41Decoder::prepare(block); }
  template <int group>
  [[gnu::always_inline]] static void decode(Bytes block, const Scales& scales, int, __m256 w[4]) {
    spread(_mm256_or_si256(split_nibbles(block + 8), fifth_bits(block + 4)), w);
    scale_all(w, scales.scale, scales.addend);
  }
};

struct Q80Decoder {
  static constexpr bool is_plain = false;
  static constexpr int block_elements = 32;
  static constexpr int block_bytes = 34;
  static constexpr int sections = 1;
  static constexpr int groups = 1;
  using Scales = __m256;
  // The shuffle puts each quant into the top byte of its lane, which extends its sign for nothing
  // and multiplies it by 2^24.
  [[gnu::always_inline]] static Scales prepare(Bytes block) {
    return _mm256_mul_ps(broadcast_float16(block), _mm256_set1_ps(0x1p-24f));
  }
  template <int group>
  [[gnu::always_inline]] static void decode(Bytes block, const Scales& scale, int, __m256 w[4]) {
    const __m256i low =
        _mm256_setr_epi8(-1, -1, -1, 0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1, 4,
                         -1, -1, -1, 5, -1, -1, -1, 6, -1, -1, -1, 7);
    const __m256i high =
        _mm256_setr_epi8(-1, -1, -1, 8, -1, -1, -1, 9, -1, -1, -1, 10, -1, -1, -1, 11, -1, -1, -1,
                         12, -1, -1, -1, 13, -1, -1, -1, 14, -1, -1, -1, 15);
    const __m256i first = load_16_bytes_twice(block + 2);
    const __m256i second = load_16_bytes_twice(block + 18);
    w[0] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_shuffle_epi8(first, low)), scale);
    w[1] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_shuffle_epi8(first, high)), scale);
    w[2] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_shuffle_epi8(second, low)), scale);
    w[3] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_shuffle_epi8(second, high)), scale);
  }
};

// Q4_K and Q5_K: eight groups of 32, each with d S_j and -dmin M_j.
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
  const __m256 d = _mm256_moveldup_ps(both);
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

[[gnu::always_inline]] inline void scale_k_group(const KScales& scales, int index, __m256 w[4]) {
  scale_all(w, _mm256_broadcast_ss(&scales.scale[index]),
            _mm256_broadcast_ss(&scales.minimum[index]));
}

struct Q4KDecoder {
  static constexpr bool is_plain = false;
  static constexpr int block_elements = 256;
  static constexpr int block_bytes = 144;
  static constexpr int sections = 4;
  static constexpr int groups = 2;
  using Scales = KScales;
  [[gnu::always_inline]] static Scales prepare(Bytes block) { return unpack_k_scales(block); }
  template <int group>
  [[gnu::always_inline]] static void decode(Bytes block, const Scales& scales, int section,
                                            __m256 w[4]) {
    spread(arrange(k_nibbles<group>(block + 16, section)), w);
    scale_k_group(scales, 2 * section + group, w);
  }
};

struct Q5KDecoder {
  static constexpr bool is_plain = false;
  static constexpr int block_elements = 256;
  static constexpr int block_bytes = 176;
  static constexpr int sections = 4;
  static constexpr int groups = 2;
  using Scales = KScales;
  [[gnu::always_inline]] static Scales prepare(Bytes block) { return unpack_k_scales(block); }
  template <int group>
  [[gnu::always_inline]] static void decode(Bytes block, const Scales& scales, int section,
                                            __m256 w[4]) {
    const int index = 2 * section + group;
    const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << index));
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(load_32_bytes(block + 16), bit), bit);
    const __m256i fifth = _mm256_and_si256(set, _mm256_set1_epi8(16));
    spread(arrange(_mm256_or_si256(k_nibbles<group>(block + 48, section), fifth)), w);
    scale_k_group(scales, index, w);
  }
};

// Q6_K: ql[128], qh[64], sixteen int8 sub-scales, d; each sub-scale serves 16 elements.
struct Q6KScales {
  alignas(32) float scale[16];
  alignas(32) float minimum[16];
};

struct Q6KDecoder {
  static constexpr bool is_plain = false;
  static constexpr int block_elements = 256;
  static constexpr int block_bytes = 210;
  static constexpr int sections = 2;
  static constexpr int groups = 4;
  using Scales = Q6KScales;
  [[gnu::always_inline]] static Scales prepare(Bytes block) {
    const __m256 d = broadcast_float16(block + 208);
    const __m256 minus_32 = _mm256_set1_ps(-32.0f);
    Scales out;
    for (int half = 0; half < 2; ++half) {
      const __m128i bytes =
          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(block + 192 + 8 * half));
      const __m256 scale = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), d);
      _mm256_store_ps(out.scale + 8 * half, scale);
      _mm256_store_ps(out.minimum + 8 * half, _mm256_mul_ps(scale, minus_32));
    }
    return out;
  }
  // Group k of section h takes bits 0-3 from the low (k < 2) or high nibbles of
  // ql[64 h + 32 (k % 2) ...] and bits 4-5 from bits 2 k and 2 k + 1 of qh[32 h ...].
  template <int group>
  [[gnu::always_inline]] static void decode(Bytes block, const Scales& scales, int section,
                                            __m256 w[4]) {
    const __m256i low_bytes = load_32_bytes(block + 64 * section + 32 * (group % 2));
    const __m256i low = _mm256_and_si256(group < 2 ? low_bytes : _mm256_srli_epi16(low_bytes, 4),
                                         _mm256_set1_epi8(15));
    __m256i high = load_32_bytes(block + 128 + 32 * section);
    if constexpr (group < 2) high = _mm256_slli_epi16(high, 4 - 2 * group);
    if constexpr (group == 3) high = _mm256_srli_epi16(high, 2);
    high = _mm256_and_si256(high, _mm256_set1_epi8(0x30));
    spread(arrange(_mm256_or_si256(low, high)), w);
    for (int i = 0; i < 4; ++i) {
      const int index = 8 * section + 2 * group + i / 2;
      w[i] = _mm256_fmadd_ps(w[i], _mm256_broadcast_ss(&scales.scale[index]),
                             _mm256_broadcast_ss(&scales.minimum[index]));
    }
  }
};

// Rounds to the nearest bfloat16, ties to even; a NaN stays one (as float_to_bfloat16).
[[gnu::always_inline]] inline __m256 round_to_bfloat16_vector(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  const __m256i rounded = _mm256_and_si256(
      _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd), upper);
  const __m256i quiet =
      _mm256_and_si256(_mm256_or_si256(bits, _mm256_set1_epi32(0x00400000)), upper);
  const __m256 is_nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
  return _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), is_nan);
}

}  // namespace
}  // namespace octet
