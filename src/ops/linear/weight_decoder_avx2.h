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

inline __m256i load_32_bytes(Bytes p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
// The same 16 bytes in both halves; the load unit does the copying.
inline __m256i load_16_bytes_twice(Bytes p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Bytes "arranged for spreading": the low half of the vector holds elements 0-3, 8-11, 16-19,
// 24-27, the high half 4-7, 12-15, 20-23, 28-31. Then one in-lane byte shuffle per eight elements
// widens them to 32 bits in order (vpmovzx would cross the halves and takes two operations on Zen).
inline void spread(__m256i arranged, __m256 out[4]) {
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
inline __m256i arrange(__m256i bytes) {
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
}

// Nibbles of Q4_0, Q4_1, Q5_0 and Q5_1 (low ones are elements 0-15, high ones 16-31), arranged.
inline __m256i split_nibbles(Bytes p) {
  const __m256i order = _mm256_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11, 4, 5,
                                         6, 7, 12, 13, 14, 15, 4, 5, 6, 7, 12, 13, 14, 15);
  const __m256i bytes = _mm256_shuffle_epi8(load_16_bytes_twice(p), order);
  const __m256i shifts = _mm256_setr_epi32(0, 0, 4, 4, 0, 0, 4, 4);
  return _mm256_and_si256(_mm256_srlv_epi32(bytes, shifts), _mm256_set1_epi8(15));
}

// Bit j of the 32-bit field at p as 16 in byte j, arranged: the fifth bits of Q5_0 and Q5_1.
inline __m256i fifth_bits(Bytes p) {
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
inline __m256 broadcast_float16(Bytes p) {
  std::int16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return _mm256_cvtph_ps(_mm_set1_epi16(bits));
}

// Two adjacent float16: the first in the even lanes, the second in the odd ones.
inline __m256 broadcast_float16_pair(Bytes p) {
  std::int32_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return _mm256_cvtph_ps(_mm_set1_epi32(bits));
}

inline void scale_all(__m256 w[4], __m256 scale, __m256 addend) {
  w[0] = _mm256_fmadd_ps(w[0], scale, addend);
  w[1] = _mm256_fmadd_ps(w[1], scale, addend);
  w[2] = _mm256_fmadd_ps(w[2], scale, addend);
  w[3] = _mm256_fmadd_ps(w[3], scale, addend);
}

// A decoder has
//   block_elements, block_bytes: of the stored block (of 32 elements for the plain types);
//   Scales, prepare(block): what the groups of a block share;
//   decode(block, scales, group, w): elements 32 group to 32 group + 31 of the block.
struct NoScales {};

struct Float32Decoder {
  static constexpr int block_elements = 32;
  static constexpr int block_bytes = 128;
  using Scales = NoScales;
  static Scales prepare(Bytes) { return {}; }
  static void decode(Bytes block, const Scales&, int, __m256 w[4]) {
    for (int i = 0; i < 4; ++i) w[i] = _mm256_castsi256_ps(load_32_bytes(block + 32 * i));
  }
};

struct Float16Decoder {
  static constexpr int block_elements = 32;
  static constexpr int block_bytes = 64;
  using Scales = NoScales;
  static Scales prepare(Bytes) { return {}; }
  static void decode(Bytes block, const Scales&, int, __m256 w[4]) {
    for (int i = 0; i < 4; ++i) {
      w[i] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 16 * i)));
    }
  }
};

struct Bfloat16Decoder {
  static constexpr int block_elements = 32;
  static constexpr int block_bytes = 64;
  using Scales = NoScales;
  static Scales prepare(Bytes) { return {}; }
  static void decode(Bytes block, const Scales&, int, __m256 w[4]) {
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
  static constexpr int block_elements = 32;
  static constexpr int block_bytes = 18;
  using Scales = SymmetricScales;
  static Scales prepare(Bytes block) {
    const __m256 d = broadcast_float16(block);
    return {d, _mm256_mul_ps(d, _mm256_set1_ps(-8.0f))};
  }
  static void decode(Bytes block, const Scales& scales, int, __m256 w[4]) {
    spread(split_nibbles(block + 2), w);
    scale_all(w, scales.scale, scales.addend);
  }
};

struct Q41Decoder {
  static constexpr int block_elements = 32;
  static constexpr int block_bytes = 20;
  using Scales = SymmetricScales;
  static Scales prepare(Bytes block) {
    const __m256 both = broadcast_float16_pair(block);
    return {_mm256_moveldup_ps(both), _mm256_movehdup_ps(both)};
  }
  static void decode(Bytes block, const Scales& scales, int, __m256 w[4]) {
    spread(split_nibbles(block + 4), w);
    scale_all(w, scales.scale, scales.addend);
  }
};

struct Q50Decoder {
  static constexpr int block_elements = 32;
  static constexpr int block_bytes = 22;
  using Scales = SymmetricScales;
  static Scales prepare(Bytes block) {
    const __m256 d = broadcast_float16(block);
    return {d, _mm256_mul_ps(d, _mm256_set1_ps(-16.0f))};
  }
  static void decode(Bytes block, const Scales& scales, int, __m256 w[4]) {
    spread(_mm256_or_si256(split_nibbles(block + 6), fifth_bits(block + 2)), w);
    scale_all(w, scales.scale, scales.addend);
  }
};

struct Q51Decoder {
  static constexpr int block_elements = 32;
  static constexpr int block_bytes = 24;
  using Scales = SymmetricScales;
  static Scales prepare(Bytes block) { return Q41Decoder::prepare(block); }
  static void decode(Bytes block, const Scales& scales, int, __m256 w[4]) {
    spread(_mm256_or_si256(split_nibbles(block + 8), fifth_bits(block + 4)), w);
    scale_all(w, scales.scale, scales.addend);
  }
};

struct Q80Decoder {
  static constexpr int block_elements = 32;
  static constexpr int block_bytes = 34;
  using Scales = __m256;
  // The shuffle puts each quant into the top byte of its lane, which extends its sign for nothing
  // and multiplies it by 2^24.
  static Scales prepare(Bytes block) {
    return _mm256_mul_ps(broadcast_float16(block), _mm256_set1_ps(0x1p-24f));
  }
  static void decode(Bytes block, const Scales& scale, int, __m256 w[4]) {
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

inline __m256 eight_bytes_to_float(std::uint64_t bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(bytes))));
}

// The 12 bytes after d and dmin hold eight 6-bit scales and eight 6-bit minima: the first four of
// each in the low bits of bytes 0-3 and 4-7; of the last four, the low nibbles in bytes 8-11 and
// the upper two bits on top of bytes 0-3 and 4-7.
inline KScales unpack_k_scales(Bytes block) {
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

// Nibbles of group `group`: low ones of 32 bytes for even groups, high ones for odd, in memory
// order.
inline __m256i k_nibbles(Bytes quants, int group) {
  const __m256i bytes = load_32_bytes(quants + 32 * (group / 2));
  const __m256i shifted = group % 2 == 0 ? bytes : _mm256_srli_epi16(bytes, 4);
  return _mm256_and_si256(shifted, _mm256_set1_epi8(15));
}

struct Q4KDecoder {
  static constexpr int block_elements = 256;
  static constexpr int block_bytes = 144;
  using Scales = KScales;
  static Scales prepare(Bytes block) { return unpack_k_scales(block); }
  static void decode(Bytes block, const Scales& scales, int group, __m256 w[4]) {
    spread(arrange(k_nibbles(block + 16, group)), w);
    scale_all(w, _mm256_broadcast_ss(&scales.scale[group]),
              _mm256_broadcast_ss(&scales.minimum[group]));
  }
};

struct Q5KDecoder {
  static constexpr int block_elements = 256;
  static constexpr int block_bytes = 176;
  using Scales = KScales;
  static Scales prepare(Bytes block) { return unpack_k_scales(block); }
  static void decode(Bytes block, const Scales& scales, int group, __m256 w[4]) {
    const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << group));
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(load_32_bytes(block + 16), bit), bit);
    const __m256i fifth = _mm256_and_si256(set, _mm256_set1_epi8(16));
    spread(arrange(_mm256_or_si256(k_nibbles(block + 48, group), fifth)), w);
    scale_all(w, _mm256_broadcast_ss(&scales.scale[group]),
              _mm256_broadcast_ss(&scales.minimum[group]));
  }
};

// Q6_K: ql[128], qh[64], sixteen int8 sub-scales, d; each sub-scale serves 16 elements.
struct Q6KScales {
  alignas(32) float scale[16];
  alignas(32) float minimum[16];
};

struct Q6KDecoder {
  static constexpr int block_elements = 256;
  static constexpr int block_bytes = 210;
  using Scales = Q6KScales;
  static Scales prepare(Bytes block) {
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
  // Group 4 h + k takes bits 0-3 from the low (k < 2) or high nibbles of ql[64 h + 32 (k % 2) ...]
  // and bits 4-5 from bits 2 k and 2 k + 1 of qh[32 h ...].
  static void decode(Bytes block, const Scales& scales, int group, __m256 w[4]) {
    const int half = group / 4;
    const int quarter = group % 4;
    const __m256i low_bytes = load_32_bytes(block + 64 * half + 32 * (quarter % 2));
    const __m256i high_bytes = load_32_bytes(block + 128 + 32 * half);
    const __m256i low = _mm256_and_si256(quarter < 2 ? low_bytes : _mm256_srli_epi16(low_bytes, 4),
                                         _mm256_set1_epi8(15));
    __m256i high = high_bytes;
    if (quarter == 0) high = _mm256_slli_epi16(high_bytes, 4);
    if (quarter == 1) high = _mm256_slli_epi16(high_bytes, 2);
    if (quarter == 3) high = _mm256_srli_epi16(high_bytes, 2);
    high = _mm256_and_si256(high, _mm256_set1_epi8(0x30));
    spread(arrange(_mm256_or_si256(low, high)), w);
    for (int i = 0; i < 4; ++i) {
      const int sub = 2 * group + i / 2;
      w[i] = _mm256_fmadd_ps(w[i], _mm256_broadcast_ss(&scales.scale[sub]),
                             _mm256_broadcast_ss(&scales.minimum[sub]));
    }
  }
};

// Rounds to the nearest bfloat16, ties to even; a NaN stays one (as float_to_bfloat16).
inline __m256 round_to_bfloat16_vector(__m256 value) {
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
