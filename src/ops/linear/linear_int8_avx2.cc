// Arithmetic::int8 (linear_int16.h) for AVX2: tiles of 6 rows x 16 outputs, as
// linear_int16_avx2.cc, but in bytes. vpmaddubsw multiplies 32 bytes where vpmaddwd does sixteen
// words. Its sums of two products are words: those of eight (of 4-bit weights) or four (of 5-bit
// ones) fit, 15 x 127 x 16 = 30,480 and 31 x 127 x 8 = 31,496, before they must become 32 bits
// wide.
#include <cstdint>
#include <cstring>
#include <limits>

#include <immintrin.h>

#include "ops/linear/linear_panels_avx2.h"

namespace octet {
namespace {

constexpr int quads = int16_block / 4;

template <int offset>
void pack_rows(const float* x, std::int64_t x_stride, int rows, std::int64_t k,
               Arithmetic arithmetic, void* packed) {
  // The words of multiply_direct are the same integers.
  const PackRows pack_words = pack_int8_as_words_avx2(false);
  auto* blocks = static_cast<Int8Block*>(packed);
  for (int row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < k / int16_block; ++i) {
      Int16Block words;
      pack_words(x + row * x_stride + i * int16_block, 0, 1, int16_block, arithmetic, &words);
      Int8Block& block = blocks[i * rows + row];
      const auto* from = reinterpret_cast<const __m256i*>(words.quants);
      const __m256i bytes =
          _mm256_packs_epi16(_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(block.quants),
                          _mm256_permute4x64_epi64(bytes, 0xD8));
      block.scale = words.scale;
      block.sum = words.sum;
      block.offset_sum = offset * words.quant_sum;
    }
  }
}

// A group's unsigned integers as bytes in order.
template <class Type, int group>
[[gnu::always_inline]] inline __m256i bytes_of(const EightBlocks& blocks, int row, int section) {
  const Words words = Type::template words<group>(blocks.of(row), section);
  if constexpr (Type::even_odd) {
    return _mm256_or_si256(words.first, _mm256_slli_epi16(words.second, 8));
  } else {
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(words.first, words.second), 0xD8);
  }
}

struct Int8Panel {
  using Block = Int8PanelBlock;

  template <class Type, int group>
  [[gnu::always_inline]] static void store(const EightBlocks& blocks, int section, int first_output,
                                           Int8PanelBlock* to) {
    __m256i rows[8];
    for (int row = 0; row < 8; ++row) rows[row] = bytes_of<Type, group>(blocks, row, section);
    __m256i fours[8];
    transpose(rows, fours);
    for (int i = 0; i < quads; ++i) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to->quants[i][first_output]), fours[i]);
    }
  }
};

template <class Type>
void decode_int8_panel(const WeightRows& weights, Arithmetic, void* panel) {
  decode_panel<Int8Panel, Type>(weights, panel);
}

// Sums of pairs of products, in words, of `count` quads from `first` on.
template <int rows, int count>
[[gnu::always_inline]] inline void add_quads(const Int8Block* x, const Int8PanelBlock& w, int first,
                                             __m256i words[rows][2]) {
#pragma GCC unroll 8
  for (int i = 0; i < count; ++i) {
    const auto* panel = reinterpret_cast<const __m256i*>(w.quants[first + i]);
    const __m256i w0 = _mm256_loadu_si256(panel);
    const __m256i w1 = _mm256_loadu_si256(panel + 1);
#pragma GCC unroll 6
    for (int row = 0; row < rows; ++row) {
      std::int32_t four;
      std::memcpy(&four, x[row].quants + 4 * (first + i), sizeof(four));
      const __m256i value = _mm256_set1_epi32(four);
      if (i == 0) {
        words[row][0] = _mm256_maddubs_epi16(w0, value);
        words[row][1] = _mm256_maddubs_epi16(w1, value);
      } else {
        words[row][0] = _mm256_add_epi16(words[row][0], _mm256_maddubs_epi16(w0, value));
        words[row][1] = _mm256_add_epi16(words[row][1], _mm256_maddubs_epi16(w1, value));
      }
      // In this order: GCC 12 multiplies all rows first, for which it has no registers.
      asm volatile("" : "+x"(words[row][0]), "+x"(words[row][1]));
    }
  }
}

template <int rows, bool minima, bool offset>
[[gnu::always_inline]] inline void fold(const Int8Block* x, const Int8PanelBlock& w,
                                        const __m256i totals[rows][2], PanelSums sums) {
#pragma GCC unroll 6
  for (int row = 0; row < rows; ++row) {
    const __m256 scale = _mm256_broadcast_ss(&x[row].scale);
    const __m256 x_sum = _mm256_broadcast_ss(&x[row].sum);
#pragma GCC unroll 2
    for (int vector = 0; vector < 2; ++vector) {
      __m256i total = totals[row][vector];
      if constexpr (offset) total = _mm256_sub_epi32(total, _mm256_set1_epi32(x[row].offset_sum));
      const __m256 w_scale = _mm256_loadu_ps(w.folds[0].scale + 8 * vector);
      __m256 sum = _mm256_loadu_ps(sums[row] + 8 * vector);
      sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total), _mm256_mul_ps(w_scale, scale), sum);
      if constexpr (minima) {
        sum = _mm256_fmadd_ps(_mm256_loadu_ps(w.folds[0].minimum + 8 * vector), x_sum, sum);
      }
      _mm256_storeu_ps(sums[row] + 8 * vector, sum);
    }
  }
}

// `five_bits`: the words of half a block become 32 bits wide at a time, else those of a block.
template <bool five_bits, bool minima, bool offset>
struct Int8Kernel {
  using Block = Int8Block;
  using PanelBlock = Int8PanelBlock;
  static constexpr int tile_rows = 6;
  static constexpr int most_outputs = 48;
  static constexpr int panels_at_once = 1;
  static constexpr std::int64_t blocks_at_once = 32;  // 6 rows of them are 12 KB

  template <int rows, int>
  [[gnu::noinline]] static void add_blocks(const Int8Block* x, const Int8PanelBlock* w,
                                           std::int64_t, std::int64_t blocks, PanelSums sums) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (std::int64_t i = 0; i < blocks; ++i, x += rows, ++w) {
      __m256i words[rows][2];
      // The sums stay in memory: GCC 12 would take them out of the loop and then spill the words.
      asm volatile("" : : : "memory");
      constexpr int at_once = five_bits ? quads / 2 : quads;
      add_quads<rows, at_once>(x, *w, 0, words);
      __m256i totals[rows][2];
#pragma GCC unroll 6
      for (int row = 0; row < rows; ++row) {
        totals[row][0] = _mm256_madd_epi16(words[row][0], ones);
        totals[row][1] = _mm256_madd_epi16(words[row][1], ones);
      }
      if constexpr (five_bits) {
        // Through memory: sums and words together are more than the registers.
        alignas(32) __m256i first_half[rows][2];
        std::memcpy(first_half, totals, sizeof(totals));
        asm volatile("" : "+m"(first_half));
        add_quads<rows, at_once>(x, *w, at_once, words);
#pragma GCC unroll 6
        for (int row = 0; row < rows; ++row) {
          for (int v = 0; v < 2; ++v) {
            totals[row][v] =
                _mm256_add_epi32(_mm256_madd_epi16(words[row][v], ones), first_half[row][v]);
          }
        }
      }
      fold<rows, minima, offset>(x, *w, totals, sums);
    }
  }
};

template <class Type, bool five_bits>
const LinearKernels& kernels_of() {
  static_assert(!Type::halves);
  using Kernel = Int8Kernel<five_bits, Type::minima, Type::offset != 0>;
  static const LinearKernels kernels = {.tile_rows = Kernel::tile_rows,
                                        .panel_outputs = int16_panel_outputs,
                                        .most_outputs = Kernel::most_outputs,
                                        .direct_rows = int16_direct_rows,
                                        .direct_bfloat16 = false,
                                        .k_step = int16_block,
                                        .packed_bytes = sizeof(Int8Block),
                                        .panel_bytes = sizeof(Int8PanelBlock) / int16_panel_outputs,
                                        .pack_rows = pack_rows<Type::offset>,
                                        .decode_panel = decode_int8_panel<Type>,
                                        .multiply = multiply<Kernel>,
                                        .multiply_direct = multiply_int16_direct_avx2,
                                        .pack_direct = pack_int8_as_words_avx2(Type::even_odd),
                                        .packed_direct_bytes = sizeof(Int16Block)};
  return kernels;
}

}  // namespace

// The caller has asked takes_int8().
const LinearKernels& linear_int8_kernels_avx2(DataType dtype) {
  switch (dtype) {
    case DataType::q4_0:
      return kernels_of<Q40Words, false>();
    case DataType::q4_1:
      return kernels_of<Q41Words, false>();
    case DataType::q5_0:
      return kernels_of<Q50Words, true>();
    case DataType::q5_1:
      return kernels_of<Q51Words, true>();
    case DataType::q5_k:
      return kernels_of<Q5KWords, true>();
    default:
      return kernels_of<Q4KWords, false>();
  }
}

}  // namespace octet
