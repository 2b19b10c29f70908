// Packed weights (ops/linear/device_packing.h) to what the tensor cores multiply. For *.cu files.
//
// A decoder reads a slab (8 rows by 256 elements). It has
//   contiguous: thread t of a group of 32 has elements 8 t to 8 t + 7, else those that
//     device_packing.h says;
//   terms: as how many bfloat16 a weight is multiplied (2: float16 and float32, as a sum);
//   fragments(slab, row, group, thread, f): the thread's eight codes as four pairs of bfloat16,
//     exactly (float32: to 16 bits);
// and where codes have scales in the slab
//   scale_groups: 8 or 16 of a unit; has_minimum;
//   Scales, load_scales(slab, row): scale(i) and minimum(i) of scale group i, so that a weight is
//     code * scale + minimum, in float32 as the format's formula has it.
// Groups and scale groups are to be compile-time constants after unrolling. For types that keep the
// order of rows, `slab` is where the row's unit begins, and `row` is not looked at.
#pragma once

#include <cstdint>

#include <cuda_fp16.h>

#include "ops/linear/device_packing.h"

namespace octet {

struct WeightFragment {
  std::uint32_t pairs[4];  // elements 0 1, 2 3, 4 5, 6 7 of a thread, the first in the low half
};

__device__ __forceinline__ std::uint32_t load_word(const std::uint8_t* at) {
  return *reinterpret_cast<const std::uint32_t*>(at);
}
__device__ __forceinline__ uint2 load_two_words(const std::uint8_t* at) {
  return *reinterpret_cast<const uint2*>(at);
}
__device__ __forceinline__ uint4 load_four_words(const std::uint8_t* at) {
  return *reinterpret_cast<const uint4*>(at);
}

// a * b + c of pairs of bfloat16, rounded once (sm_80 and later; a product or sum by itself needs
// sm_90).
__device__ __forceinline__ std::uint32_t fma_bfloat16x2(std::uint32_t a, std::uint32_t b,
                                                        std::uint32_t c) {
  std::uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
__device__ __forceinline__ std::uint32_t to_bfloat16x2(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ float low_of_pair(std::uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_of_pair(std::uint32_t pair) {
  return __uint_as_float(pair & 0xFFFF0000u);
}

inline constexpr std::uint32_t bfloat16_ones = 0x3F803F80u;
inline constexpr std::uint32_t bfloat16_minus_ones = 0xBF80BF80u;

// Four bytes below 128, less `bias`, as two pairs. 0x4300 + b is the bfloat16 of 128 + b.
template <int bias>
__device__ __forceinline__ void from_unsigned_bytes(std::uint32_t bytes, std::uint32_t* pairs) {
  static_assert(bias >= 0 && bias < 128);
  constexpr std::uint32_t offset = 0xC300u + bias;  // -(128 + bias)
  constexpr std::uint32_t offsets = offset << 16 | offset;
  pairs[0] = fma_bfloat16x2(__byte_perm(bytes, 0x43434343u, 0x4140), bfloat16_ones, offsets);
  pairs[1] = fma_bfloat16x2(__byte_perm(bytes, 0x43434343u, 0x4342), bfloat16_ones, offsets);
}

// Four signed bytes as two pairs: 128 + the low seven bits, less 128 or, with the sign bit, 256
// (0x4300 and 0x4380).
__device__ __forceinline__ void from_signed_bytes(std::uint32_t bytes, std::uint32_t* pairs) {
  const std::uint32_t first = __byte_perm(bytes, 0x43434343u, 0x4140);
  const std::uint32_t second = __byte_perm(bytes, 0x43434343u, 0x4342);
  pairs[0] = fma_bfloat16x2(first & 0xFF80FF80u, bfloat16_minus_ones, first & 0xFF7FFF7Fu);
  pairs[1] = fma_bfloat16x2(second & 0xFF80FF80u, bfloat16_minus_ones, second & 0xFF7FFF7Fu);
}

// Four e4m3 codes, of elements 2, 0, 3 and 1, as two pairs: their exponent and mantissa, in the
// place of bfloat16's, are worth 2^-120 times the code, subnormal ones too.
__device__ __forceinline__ void spread_e4m3_bytes(std::uint32_t bytes, std::uint32_t* pairs) {
  constexpr std::uint32_t signs = 0x80008000u;
  constexpr std::uint32_t magnitudes = 0x07F007F0u;
  pairs[0] = (bytes & signs) | (bytes >> 4 & magnitudes);
  pairs[1] = (bytes << 8 & signs) | (bytes << 4 & magnitudes);
}

// The same codes' values.
__device__ __forceinline__ void from_e4m3_bytes(std::uint32_t bytes, std::uint32_t* pairs) {
  constexpr std::uint32_t two_to_120 = 0x7B807B80u;
  constexpr std::uint32_t minus_zeros = 0x80008000u;
  spread_e4m3_bytes(bytes, pairs);
  pairs[0] = fma_bfloat16x2(pairs[0], two_to_120, minus_zeros);
  pairs[1] = fma_bfloat16x2(pairs[1], two_to_120, minus_zeros);
}

// Two bits of each of four codes from a plane of one or two bits, at bit `to` of their bytes.
template <std::uint32_t mask>
__device__ __forceinline__ std::uint32_t plane_bits(std::uint32_t word, int from, int to) {
  return (from > to ? word >> (from - to) : word << (to - from)) & (mask << to);
}

__device__ __forceinline__ float half_at(std::uint32_t word, int which) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(word >> (16 * which))));
}
__device__ __forceinline__ float load_half(const std::uint8_t* at) {
  return __half2float(__ushort_as_half(*reinterpret_cast<const unsigned short*>(at)));
}
__device__ __forceinline__ int signed_byte(std::uint32_t word, int which) {
  return static_cast<int>(word << (24 - 8 * which)) >> 24;
}
__device__ __forceinline__ std::uint32_t word_of(const uint4& words, int which) {
  return which == 0 ? words.x : which == 1 ? words.y : which == 2 ? words.z : words.w;
}

template <DataType type>
struct WeightDecoder;

// --- Plain types.

template <>
struct WeightDecoder<DataType::bfloat16> {
  static constexpr bool contiguous = true;
  static constexpr int terms = 1;
  static constexpr int scale_groups = 0;
  static __device__ __forceinline__ void fragments(const std::uint8_t* slab, int row, int group,
                                                   int thread, WeightFragment* f) {
    const uint4 words = load_four_words(slab + 64 * group + 16 * thread);
    f->pairs[0] = words.x;
    f->pairs[1] = words.y;
    f->pairs[2] = words.z;
    f->pairs[3] = words.w;
  }
};

// A float as a sum of two bfloat16: 16 bits of its 24, all 11 of a float16.
__device__ __forceinline__ void split_floats(const float (&values)[8], WeightFragment* f) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t upper = to_bfloat16x2(values[2 * i], values[2 * i + 1]);
    f[0].pairs[i] = upper;
    f[1].pairs[i] =
        to_bfloat16x2(values[2 * i] - low_of_pair(upper), values[2 * i + 1] - high_of_pair(upper));
  }
}

template <>
struct WeightDecoder<DataType::float16> {
  static constexpr bool contiguous = true;
  static constexpr int terms = 2;
  static constexpr int scale_groups = 0;
  static __device__ __forceinline__ void floats(const std::uint8_t* slab, int row, int group,
                                                int thread, float (&values)[8]) {
    const uint4 words = load_four_words(slab + 64 * group + 16 * thread);
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = half_at(word_of(words, i / 2), i % 2);
  }
  static __device__ __forceinline__ void fragments(const std::uint8_t* slab, int row, int group,
                                                   int thread, WeightFragment* f) {
    float values[8];
    floats(slab, row, group, thread, values);
    split_floats(values, f);
  }
};

template <>
struct WeightDecoder<DataType::float32> {
  static constexpr bool contiguous = true;
  static constexpr int terms = 2;
  static constexpr int scale_groups = 0;
  static __device__ __forceinline__ void floats(const std::uint8_t* slab, int row, int group,
                                                int thread, float (&values)[8]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 words = load_four_words(slab + 128 * group + 32 * thread + 16 * half);
#pragma unroll
      for (int i = 0; i < 4; ++i) values[4 * half + i] = __uint_as_float(word_of(words, i));
    }
  }
  static __device__ __forceinline__ void fragments(const std::uint8_t* slab, int row, int group,
                                                   int thread, WeightFragment* f) {
    float values[8];
    floats(slab, row, group, thread, values);
    split_floats(values, f);
  }
};

// Its scales lie apart (DeviceScales).
template <>
struct WeightDecoder<DataType::float8_e4m3> {
  static constexpr bool contiguous = true;
  static constexpr int terms = 1;
  static constexpr int scale_groups = 0;
  static __device__ __forceinline__ void fragments(const std::uint8_t* slab, int row, int group,
                                                   int thread, WeightFragment* f) {
    const uint2 words = load_two_words(slab + 256 * group + 32 * row + 8 * thread);
    from_e4m3_bytes(words.x, f->pairs);
    from_e4m3_bytes(words.y, f->pairs + 2);
  }
};

// --- Planes of codes.

// `bias` is taken from codes of four bits and, from planes after the first 128 bytes, as many more.
template <int bias, int more_bits>
struct NibbleCodes {
  static constexpr bool contiguous = false;
  static constexpr int terms = 1;
  static __device__ __forceinline__ void fragments(const std::uint8_t* slab, int row, int group,
                                                   int thread, WeightFragment* f) {
    const std::uint32_t nibbles = load_word(slab + 128 * group + 16 * row + 4 * thread);
    std::uint32_t first = nibbles & 0x0F0F0F0Fu;
    std::uint32_t second = nibbles >> 4 & 0x0F0F0F0Fu;
    if constexpr (more_bits == 1) {
      const std::uint32_t word = load_word(slab + 1024 + 128 * (group / 4) + 16 * row + 4 * thread);
      first |= plane_bits<0x01010101u>(word, 2 * (group % 4), 4);
      second |= plane_bits<0x01010101u>(word, 2 * (group % 4) + 1, 4);
    } else if constexpr (more_bits == 2) {
      const std::uint32_t word = load_word(slab + 1024 + 128 * (group / 2) + 16 * row + 4 * thread);
      first |= plane_bits<0x03030303u>(word, 4 * (group % 2), 4);
      second |= plane_bits<0x03030303u>(word, 4 * (group % 2) + 2, 4);
    }
    from_unsigned_bytes<bias>(first, f->pairs);
    from_unsigned_bytes<bias>(second, f->pairs + 2);
  }
};

// The same for codes of two bits and, from 64 bytes on, maybe a third.
template <int bias, bool third_bit>
struct TwoBitCodes {
  static constexpr bool contiguous = false;
  static constexpr int terms = 1;
  static __device__ __forceinline__ void fragments(const std::uint8_t* slab, int row, int group,
                                                   int thread, WeightFragment* f) {
    const std::uint32_t word = load_word(slab + 128 * (group / 2) + 16 * row + 4 * thread);
    std::uint32_t first = plane_bits<0x03030303u>(word, 4 * (group % 2), 0);
    std::uint32_t second = plane_bits<0x03030303u>(word, 4 * (group % 2) + 2, 0);
    if constexpr (third_bit) {
      const std::uint32_t high = load_word(slab + 512 + 128 * (group / 4) + 16 * row + 4 * thread);
      first |= plane_bits<0x01010101u>(high, 2 * (group % 4), 2);
      second |= plane_bits<0x01010101u>(high, 2 * (group % 4) + 1, 2);
    }
    from_unsigned_bytes<bias>(first, f->pairs);
    from_unsigned_bytes<bias>(second, f->pairs + 2);
  }
};

// Four bits that choose from sixteen signed bytes, given as four words.
template <std::uint32_t t0, std::uint32_t t1, std::uint32_t t2, std::uint32_t t3>
struct TableCodes {
  static constexpr bool contiguous = false;
  static constexpr int terms = 1;
  static __device__ __forceinline__ void fragments(const std::uint8_t* slab, int row, int group,
                                                   int thread, WeightFragment* f) {
    const std::uint32_t nibbles = load_word(slab + 128 * group + 16 * row + 4 * thread);
    // A byte permutation looks four nibbles up in eight bytes; the fourth bit chooses between two.
    const std::uint32_t low_bits = nibbles & 0x77777777u;
    const std::uint32_t choice = 0x32103210u | (nibbles & 0x88888888u) >> 1;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t lower = __byte_perm(t0, t1, low_bits >> (16 * half));
      const std::uint32_t upper = __byte_perm(t2, t3, low_bits >> (16 * half));
      from_signed_bytes(__byte_perm(lower, upper, choice >> (16 * half)), f->pairs + 2 * half);
    }
  }
};
// kvalues_iq4nl of ggml-common.h, and twice the values of e2m1 (kvalues_mxfp4 there).
using Iq4Codes = TableCodes<0xBFAD9881u, 0xF6EADDCFu, 0x26190D01u, 0x71594535u>;
using E2m1Codes = TableCodes<0x03020100u, 0x0C080604u, 0xFDFEFF00u, 0xF4F8FAFCu>;

// --- Scales of 32 elements.

template <int offset>
struct HalfScales {
  static constexpr int scale_groups = 8;
  static constexpr bool has_minimum = false;
  struct Scales {
    uint4 words;
    __device__ __forceinline__ float scale(int i) const {
      return half_at(word_of(words, i / 2), i % 2);
    }
  };
  static __device__ __forceinline__ Scales load_scales(const std::uint8_t* slab, int row) {
    return {load_four_words(slab + 8 * offset + 16 * row)};
  }
};

template <int offset>
struct HalfScalesAndMinima {
  static constexpr int scale_groups = 8;
  static constexpr bool has_minimum = true;
  struct Scales {
    uint4 scales;
    uint4 minima;
    __device__ __forceinline__ float scale(int i) const {
      return half_at(word_of(scales, i / 2), i % 2);
    }
    __device__ __forceinline__ float minimum(int i) const {
      return half_at(word_of(minima, i / 2), i % 2);
    }
  };
  static __device__ __forceinline__ Scales load_scales(const std::uint8_t* slab, int row) {
    return {load_four_words(slab + 8 * offset + 16 * row),
            load_four_words(slab + 8 * (offset + 16) + 16 * row)};
  }
};

// Q4_K and Q5_K: eight scales and minima of six bits in twelve bytes (files/block_decode.cc),
// spread to a byte each here.
template <int offset>
struct SixBitScalesAndMinima {
  static constexpr int scale_groups = 8;
  static constexpr bool has_minimum = true;
  struct Scales {
    float scale_of_all;
    float minimum_of_all;
    std::uint32_t scales[2];
    std::uint32_t minima[2];
    __device__ __forceinline__ float scale(int i) const {
      return scale_of_all * static_cast<float>(scales[i / 4] >> (8 * (i % 4)) & 0xFFu);
    }
    __device__ __forceinline__ float minimum(int i) const {
      return minimum_of_all * static_cast<float>(minima[i / 4] >> (8 * (i % 4)) & 0xFFu);
    }
  };
  static __device__ __forceinline__ Scales load_scales(const std::uint8_t* slab, int row) {
    const uint4 words = load_four_words(slab + 8 * offset + 16 * row);
    Scales s;
    s.scale_of_all = half_at(words.x, 0);
    s.minimum_of_all = -half_at(words.x, 1);
    s.scales[0] = words.y & 0x3F3F3F3Fu;
    s.minima[0] = words.z & 0x3F3F3F3Fu;
    s.scales[1] = (words.w & 0x0F0F0F0Fu) | (words.y >> 2 & 0x30303030u);
    s.minima[1] = (words.w >> 4 & 0x0F0F0F0Fu) | (words.z >> 2 & 0x30303030u);
    return s;
  }
};

struct Iq4XsScales {
  static constexpr int scale_groups = 8;
  static constexpr bool has_minimum = false;
  struct Scales {
    float of_all;
    std::uint32_t scales[2];
    __device__ __forceinline__ float scale(int i) const {
      return of_all * static_cast<float>(signed_byte(scales[i / 4], i % 4));
    }
  };
  static __device__ __forceinline__ Scales load_scales(const std::uint8_t* slab, int row) {
    const uint2 words = load_two_words(slab + 1024 + 8 * row);
    return {load_half(slab + 1088 + 2 * row), {words.x, words.y}};
  }
};

struct ExponentScales {
  static constexpr int scale_groups = 8;
  static constexpr bool has_minimum = false;
  struct Scales {
    uint2 words;
    // 2^(e - 128): the codes are doubled. The two least are subnormal.
    __device__ __forceinline__ float scale(int i) const {
      const std::uint32_t e = (i < 4 ? words.x : words.y) >> (8 * (i % 4)) & 0xFFu;
      return __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    }
  };
  static __device__ __forceinline__ Scales load_scales(const std::uint8_t* slab, int row) {
    return {load_two_words(slab + 1024 + 8 * row)};
  }
};

// --- Scales of 16 elements.

struct Q6kScales {
  static constexpr int scale_groups = 16;
  static constexpr bool has_minimum = false;
  struct Scales {
    float of_all;
    uint4 words;
    __device__ __forceinline__ float scale(int i) const {
      return of_all * static_cast<float>(signed_byte(word_of(words, i / 4), i % 4));
    }
  };
  static __device__ __forceinline__ Scales load_scales(const std::uint8_t* slab, int row) {
    return {load_half(slab + 1664 + 2 * row), load_four_words(slab + 1536 + 16 * row)};
  }
};

struct Q3kScales {
  static constexpr int scale_groups = 16;
  static constexpr bool has_minimum = false;
  struct Scales {
    float of_all;
    uint4 words;
    __device__ __forceinline__ float scale(int i) const {
      const auto code = static_cast<int>(word_of(words, i / 4) >> (8 * (i % 4)) & 0xFFu);
      return of_all * static_cast<float>(code - 32);
    }
  };
  static __device__ __forceinline__ Scales load_scales(const std::uint8_t* slab, int row) {
    const std::uint8_t* at = slab + 768 + 12 * row;
    const uint3 packed = make_uint3(load_word(at), load_word(at + 4), load_word(at + 8));
    Scales s;
    s.of_all = load_half(slab + 864 + 2 * row);
    s.words.x = (packed.x & 0x0F0F0F0Fu) | (packed.z << 4 & 0x30303030u);
    s.words.y = (packed.y & 0x0F0F0F0Fu) | (packed.z << 2 & 0x30303030u);
    s.words.z = (packed.x >> 4 & 0x0F0F0F0Fu) | (packed.z & 0x30303030u);
    s.words.w = (packed.y >> 4 & 0x0F0F0F0Fu) | (packed.z >> 2 & 0x30303030u);
    return s;
  }
};

struct Q2kScales {
  static constexpr int scale_groups = 16;
  static constexpr bool has_minimum = true;
  struct Scales {
    float scale_of_all;
    float minimum_of_all;
    uint4 words;  // a byte each: the scale in the low nibble
    __device__ __forceinline__ float scale(int i) const {
      return scale_of_all * static_cast<float>(word_of(words, i / 4) >> (8 * (i % 4)) & 0xFu);
    }
    __device__ __forceinline__ float minimum(int i) const {
      return minimum_of_all * static_cast<float>(word_of(words, i / 4) >> (8 * (i % 4) + 4) & 0xFu);
    }
  };
  static __device__ __forceinline__ Scales load_scales(const std::uint8_t* slab, int row) {
    const std::uint32_t of_all = load_word(slab + 640 + 4 * row);
    return {half_at(of_all, 0), -half_at(of_all, 1), load_four_words(slab + 512 + 16 * row)};
  }
};

// --- Quantised types.

template <>
struct WeightDecoder<DataType::q4_0> : NibbleCodes<8, 0>, HalfScales<128> {};
template <>
struct WeightDecoder<DataType::q4_1> : NibbleCodes<0, 0>, HalfScalesAndMinima<128> {};
template <>
struct WeightDecoder<DataType::q5_0> : NibbleCodes<16, 1>, HalfScales<160> {};
template <>
struct WeightDecoder<DataType::q5_1> : NibbleCodes<0, 1>, HalfScalesAndMinima<160> {};
template <>
struct WeightDecoder<DataType::q8_0> : HalfScales<256> {
  static constexpr bool contiguous = false;
  static constexpr int terms = 1;
  static __device__ __forceinline__ void fragments(const std::uint8_t* slab, int row, int group,
                                                   int thread, WeightFragment* f) {
    const uint2 words = load_two_words(slab + 256 * group + 32 * row + 8 * thread);
    from_signed_bytes(words.x, f->pairs);
    from_signed_bytes(words.y, f->pairs + 2);
  }
};
template <>
struct WeightDecoder<DataType::q2_k> : TwoBitCodes<0, false>, Q2kScales {};
template <>
struct WeightDecoder<DataType::q3_k> : TwoBitCodes<4, true>, Q3kScales {};
template <>
struct WeightDecoder<DataType::q4_k> : NibbleCodes<0, 0>, SixBitScalesAndMinima<128> {};
template <>
struct WeightDecoder<DataType::q5_k> : NibbleCodes<0, 1>, SixBitScalesAndMinima<160> {};
template <>
struct WeightDecoder<DataType::q6_k> : NibbleCodes<32, 2>, Q6kScales {};
template <>
struct WeightDecoder<DataType::iq4_nl> : Iq4Codes, HalfScales<128> {};
template <>
struct WeightDecoder<DataType::iq4_xs> : Iq4Codes, Iq4XsScales {};
template <>
struct WeightDecoder<DataType::mxfp4> : E2m1Codes, ExponentScales {};

}  // namespace octet
