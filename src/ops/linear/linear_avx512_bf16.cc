// Linear kernels for Arithmetic::bfloat16 by BF16 dot products (vdpbf16ps): a lane sums the
// products of elements 2 l and 2 l + 1 (mod 32) in ascending k, two at a time as the instruction
// adds them; the sixteen lanes are added pairwise at the end. 6 rows x 4 outputs are 24 sums.
//
// Decode uses the same sums, straight from the stored weights. Those of 4 and 5 bits are looked up:
// a block's 16 or 32 possible weights, rounded, fill one register, and vpermw picks 32 of them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "ops/cpu/scratch.h"
#include "ops/linear/linear_avx2.h"
#include "ops/linear/with_decoder_avx2.h"

namespace octet {
namespace {

constexpr int tile_rows = 6;
constexpr int outputs_of_panel = 4;
constexpr int most_direct_rows = 4;
constexpr int vector_elements = 32;

using Element = std::uint16_t;

template <class To, class From>
[[gnu::always_inline]] inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

[[gnu::always_inline]] inline __m512bh load_elements(const Element* p) {
  return same_bits<__m512bh>(_mm512_loadu_si512(p));
}

[[gnu::always_inline]] inline __m512 join(__m256 low, __m256 high) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

// Layout: [padded k / 32][rows][32].
void pack_rows(const float* x, std::int64_t x_stride, int rows, std::int64_t k, Arithmetic,
               void* packed) {
  for (int row = 0; row < rows; ++row) {
    const float* from = x + row * x_stride;
    Element* to = static_cast<Element*>(packed) + vector_elements * row;
    for (std::int64_t i = 0; i < padded(k); i += 16) {
      const std::int64_t left = k - i;
      const auto mask = static_cast<__mmask16>(left >= 16  ? 0xFFFF
                                               : left <= 0 ? 0
                                                           : (1 << left) - 1);
      const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, from + i));
      std::memcpy(to + i / 32 * 32 * rows + i % 32, &rounded, sizeof(rounded));
    }
  }
}

// The 32 weights of a group, rounded: by the decoders of AVX2 unless there is a faster way below.
template <class Decoder>
struct RoundedGroup {
  template <int group>
  [[gnu::always_inline]] static __m512bh get(Bytes block, const typename Decoder::Scales& scales,
                                             int section) {
    const auto quants = Decoder::template load<group>(block, section);
    return _mm512_cvtne2ps_pbh(join(Decoder::template vector<group, 2>(quants, scales, section),
                                    Decoder::template vector<group, 3>(quants, scales, section)),
                               join(Decoder::template vector<group, 0>(quants, scales, section),
                                    Decoder::template vector<group, 1>(quants, scales, section)));
  }
};

[[gnu::always_inline]] inline __m512 zero_to_fifteen() {
  return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

// Sixteen values, rounded, twice: the index's fifth bit does not matter.
[[gnu::always_inline]] inline __m512i table_of_16(__m512 values) {
  const auto half = same_bits<__m256i>(_mm512_cvtneps_pbh(values));
  return _mm512_inserti64x4(_mm512_castsi256_si512(half), half, 1);
}

// Indices of the 32 quants of Q4_0 to Q5_1 in their low four bits: bytes' low nibbles, then their
// high ones.
[[gnu::always_inline]] inline __m512i nibble_indices(Bytes p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepu8_epi16(_mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes));
}

[[gnu::always_inline]] inline float float16_at(Bytes p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return _cvtsh_ss(bits);
}

template <>
struct RoundedGroup<Q41Decoder> {
  template <int group>
  [[gnu::always_inline]] static __m512bh get(Bytes block, const ScaleAndMinimum& scales, int) {
    const __m512 values = _mm512_fmadd_ps(
        zero_to_fifteen(), _mm512_broadcastss_ps(_mm256_castps256_ps128(scales.scale)),
        _mm512_broadcastss_ps(_mm256_castps256_ps128(scales.minimum)));
    return same_bits<__m512bh>(
        _mm512_permutexvar_epi16(nibble_indices(block + 4), table_of_16(values)));
  }
};

template <>
struct RoundedGroup<Q40Decoder> {
  template <int group>
  [[gnu::always_inline]] static __m512bh get(Bytes block, const __m256&, int) {
    const __m512 values = _mm512_mul_ps(_mm512_sub_ps(zero_to_fifteen(), _mm512_set1_ps(8)),
                                        _mm512_set1_ps(float16_at(block)));
    return same_bits<__m512bh>(
        _mm512_permutexvar_epi16(nibble_indices(block + 2), table_of_16(values)));
  }
};

template <>
struct RoundedGroup<Q50Decoder> {
  template <int group>
  [[gnu::always_inline]] static __m512bh get(Bytes block, const __m256&, int) {
    const __m512 scale = _mm512_set1_ps(float16_at(block));
    const __m512 low = _mm512_sub_ps(zero_to_fifteen(), _mm512_set1_ps(16));
    const auto table = same_bits<__m512i>(
        _mm512_cvtne2ps_pbh(_mm512_mul_ps(zero_to_fifteen(), scale), _mm512_mul_ps(low, scale)));
    std::uint32_t fifth_bits;
    std::memcpy(&fifth_bits, block + 2, sizeof(fifth_bits));
    const __m512i nibbles = _mm512_and_si512(nibble_indices(block + 6), _mm512_set1_epi16(15));
    const __m512i indices = _mm512_mask_add_epi16(nibbles, static_cast<__mmask32>(fifth_bits),
                                                  nibbles, _mm512_set1_epi16(16));
    return same_bits<__m512bh>(_mm512_permutexvar_epi16(indices, table));
  }
};

template <>
struct RoundedGroup<Q80Decoder> {
  template <int group>
  [[gnu::always_inline]] static __m512bh get(Bytes block, const __m256&, int) {
    const __m512 scale = _mm512_set1_ps(float16_at(block));
    const auto sixteen = [&](int i) __attribute__((always_inline)) {
      const __m128i quants = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 2 + 16 * i));
      return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(quants)), scale);
    };
    return _mm512_cvtne2ps_pbh(sixteen(1), sixteen(0));
  }
};

template <>
struct RoundedGroup<Q4KDecoder> {
  template <int group>
  [[gnu::always_inline]] static __m512bh get(Bytes block, const KScales& scales, int section) {
    const int index = 2 * section + group;
    // Its quants are 2^24 times as large elsewhere, and the scale as much smaller.
    const __m512 values =
        _mm512_fmadd_ps(_mm512_mul_ps(zero_to_fifteen(), _mm512_set1_ps(1 / widening)),
                        _mm512_set1_ps(scales.scale[index]), _mm512_set1_ps(scales.minimum[index]));
    __m256i bytes = load_32_bytes(block + 16 + 32 * section);
    if constexpr (group == 1) bytes = _mm256_srli_epi16(bytes, 4);
    return same_bits<__m512bh>(
        _mm512_permutexvar_epi16(_mm512_cvtepu8_epi16(bytes), table_of_16(values)));
  }
};

// Calls use(rounded weights) for each group of 32 elements of a row, in order.
template <class Decoder, int group, class Use>
[[gnu::always_inline]] inline void for_groups(Bytes block, const typename Decoder::Scales& scales,
                                              int section, const Use& use) {
  use(RoundedGroup<Decoder>::template get<group>(block, scales, section));
  if constexpr (group + 1 < Decoder::groups) {
    for_groups<Decoder, group + 1>(block, scales, section, use);
  }
}
template <class Decoder, class Use>
[[gnu::always_inline]] inline void for_row(Bytes row, std::int64_t k, const Use& use) {
  const auto take_block = [&](Bytes block) __attribute__((always_inline)) {
    const auto scales = Decoder::prepare(block);
    for (int section = 0; section < Decoder::sections; ++section) {
      for_groups<Decoder, 0>(block, scales, section, use);
    }
  };
  for (std::int64_t i = 0; i < k / Decoder::block_elements; ++i) {
    take_block(row + i * Decoder::block_bytes);
  }
  if constexpr (Decoder::is_plain) {
    if (k % Decoder::block_elements != 0) {
      unsigned char tail[Decoder::block_bytes];
      copy_tail<Decoder>(row, k, tail);
      take_block(tail);
    }
  }
}

// Codes whose scales lie apart are decoded by AVX2, two outputs at a time, [padded k / 8][2][8].
void decode_float8(const WeightRows& weights, Element* panel) {
  thread_local Scratch scratch;
  auto* floats = static_cast<float*>(
      scratch.reserve(static_cast<std::size_t>(padded(weights.k)) * 2 * sizeof(float)));
  for (std::int64_t first = 0; first < weights.outputs; first += 2) {
    WeightRows two = weights;
    two.data += first * weights.row_bytes;
    two.first_row += first;
    two.outputs = std::min<std::int64_t>(weights.outputs - first, 2);
    decode_panel_float8_avx2(two, floats);
    for (std::int64_t output = 0; output < two.outputs; ++output) {
      for (std::int64_t i = 0; i < padded(weights.k); i += 32) {
        const float* from = floats + 2 * i + 8 * output;
        const __m512bh rounded =
            _mm512_cvtne2ps_pbh(join(_mm256_loadu_ps(from + 32), _mm256_loadu_ps(from + 48)),
                                join(_mm256_loadu_ps(from), _mm256_loadu_ps(from + 16)));
        std::memcpy(panel + i * outputs_of_panel + 32 * (first + output), &rounded,
                    sizeof(rounded));
      }
    }
  }
}

// Layout of a panel: [padded k / 32][4 outputs][32].
void decode_panel(const WeightRows& weights, Arithmetic, void* panel) {
  auto* to = static_cast<Element*>(panel);
  for (std::int64_t output = weights.outputs; output < outputs_of_panel; ++output) {
    for (std::int64_t i = 0; i < padded(weights.k); i += 32) {
      _mm512_storeu_si512(to + i * outputs_of_panel + 32 * output, _mm512_setzero_si512());
    }
  }
  if (weights.dtype == DataType::float8_e4m3) return decode_float8(weights, to);
  with_decoder(weights.dtype, [&](auto decoder) {
    const auto* data = reinterpret_cast<Bytes>(weights.data);
    for (std::int64_t output = 0; output < weights.outputs; ++output) {
      Element* out = to + 32 * output;
      for_row<decltype(decoder)>(
          data + output * weights.row_bytes,
          weights.k, [&out](__m512bh group) __attribute__((always_inline)) {
            _mm512_storeu_si512(out, same_bits<__m512i>(group));
            out += 32 * outputs_of_panel;
          });
    }
  });
}

template <int rows>
void multiply_panel(const Element* x, const Element* w, std::int64_t padded_k, std::int64_t first,
                    std::int64_t outputs, const OutputTile& tile) {
  __m512 sums[rows][outputs_of_panel];
#pragma GCC unroll 8
  for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 4
    for (int output = 0; output < outputs_of_panel; ++output) {
      sums[row][output] = _mm512_setzero_ps();
    }
  }
  for (std::int64_t k = 0; k < padded_k; k += vector_elements) {
    __m512bh columns[outputs_of_panel];
#pragma GCC unroll 4
    for (int output = 0; output < outputs_of_panel; ++output) {
      columns[output] = load_elements(w + 32 * output);
    }
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) {
      const __m512bh value = load_elements(x + 32 * row);
#pragma GCC unroll 4
      for (int output = 0; output < outputs_of_panel; ++output) {
        sums[row][output] = _mm512_dpbf16_ps(sums[row][output], value, columns[output]);
      }
    }
    x += vector_elements * rows;
    w += vector_elements * outputs_of_panel;
  }
  // All of them, by constant indices: GCC 12 keeps sums that a variable indexes in memory.
  float totals[rows][outputs_of_panel];
#pragma GCC unroll 8
  for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 4
    for (int output = 0; output < outputs_of_panel; ++output) {
      totals[row][output] = _mm512_reduce_add_ps(sums[row][output]);
    }
  }
  for (int row = 0; row < rows; ++row) {
    for (std::int64_t output = 0; output < outputs; ++output) {
      store_sum(totals[row][output], row, first + output, tile);
    }
  }
}

void multiply(const void* packed, int rows, const void* panels, std::int64_t outputs,
              std::int64_t padded_k, const OutputTile& tile) {
  const auto* x = static_cast<const Element*>(packed);
  for (std::int64_t first = 0; first < outputs; first += outputs_of_panel) {
    const Element* w = static_cast<const Element*>(panels) + first * padded_k;
    const std::int64_t count = std::min<std::int64_t>(outputs - first, outputs_of_panel);
    switch (rows) {
      case 1:
        multiply_panel<1>(x, w, padded_k, first, count, tile);
        break;
      case 2:
        multiply_panel<2>(x, w, padded_k, first, count, tile);
        break;
      case 3:
        multiply_panel<3>(x, w, padded_k, first, count, tile);
        break;
      case 4:
        multiply_panel<4>(x, w, padded_k, first, count, tile);
        break;
      case 5:
        multiply_panel<5>(x, w, padded_k, first, count, tile);
        break;
      default:
        multiply_panel<6>(x, w, padded_k, first, count, tile);
        break;
    }
  }
}

template <class Decoder, int rows>
void direct_output(const Element* x, Bytes row, std::int64_t k, std::int64_t output,
                   const OutputTile& tile) {
  __m512 sums[rows];
#pragma GCC unroll 4
  for (int i = 0; i < rows; ++i) sums[i] = _mm512_setzero_ps();
  for_row<Decoder>(
      row, k, [&](__m512bh group) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int i = 0; i < rows; ++i) {
          sums[i] = _mm512_dpbf16_ps(sums[i], load_elements(x + 32 * i), group);
        }
        x += vector_elements * rows;
      });
  for (int i = 0; i < rows; ++i) store_sum(_mm512_reduce_add_ps(sums[i]), i, output, tile);
}

void direct_float8(const void* packed, int rows, const WeightRows& weights,
                   const OutputTile& tile) {
  thread_local Scratch scratch;
  void* panel = scratch.reserve(static_cast<std::size_t>(padded(weights.k)) * outputs_of_panel *
                                sizeof(Element));
  for (std::int64_t first = 0; first < weights.outputs; first += outputs_of_panel) {
    WeightRows part = weights;
    part.data += first * weights.row_bytes;
    part.first_row += first;
    part.outputs = std::min<std::int64_t>(weights.outputs - first, outputs_of_panel);
    decode_panel(part, Arithmetic::bfloat16, panel);
    multiply(packed, rows, panel, part.outputs, padded(weights.k),
             {tile.y + first, tile.y_stride, tile.bias == nullptr ? nullptr : tile.bias + first});
  }
}

void multiply_direct(const void* packed, int rows, const WeightRows& weights,
                     const OutputTile& tile) {
  if (weights.dtype == DataType::float8_e4m3) return direct_float8(packed, rows, weights, tile);
  const auto* x = static_cast<const Element*>(packed);
  with_decoder(weights.dtype, [&](auto decoder) {
    using Decoder = decltype(decoder);
    const auto* data = reinterpret_cast<Bytes>(weights.data);
    for (std::int64_t output = 0; output < weights.outputs; ++output) {
      Bytes row = data + output * weights.row_bytes;
      switch (rows) {
        case 1:
          direct_output<Decoder, 1>(x, row, weights.k, output, tile);
          break;
        case 2:
          direct_output<Decoder, 2>(x, row, weights.k, output, tile);
          break;
        case 3:
          direct_output<Decoder, 3>(x, row, weights.k, output, tile);
          break;
        default:
          direct_output<Decoder, 4>(x, row, weights.k, output, tile);
          break;
      }
    }
  });
}

constexpr LinearKernels kernels = {.tile_rows = tile_rows,
                                   .panel_outputs = outputs_of_panel,
                                   .most_outputs = 48,
                                   .direct_rows = most_direct_rows,
                                   .direct_bfloat16 = true,
                                   .k_step = k_step_avx2,
                                   .packed_bytes = k_step_avx2 * sizeof(Element),
                                   .panel_bytes = k_step_avx2 * sizeof(Element),
                                   .pack_rows = pack_rows,
                                   .decode_panel = decode_panel,
                                   .multiply = multiply,
                                   .multiply_direct = multiply_direct};

}  // namespace

const LinearKernels& linear_kernels_avx512_bf16() { return kernels; }

}  // namespace octet
