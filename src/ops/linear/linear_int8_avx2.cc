// Arithmetic::int8 (linear_int16.h) for AVX2: tiles of 6 rows x 16 outputs, as
// linear_int16_avx2.cc, but in bytes. vpmaddubsw multiplies 32 bytes where vpmaddwd does sixteen
// words. Its sums of two products are words: those of eight (of 4-bit weights) or four (of 5-bit
// ones) fit, 15 x 127 x 16 = 30,480 and 31 x 127 x 8 = 31,496, before they must become 32 bits
// wide.
#include <cstdint>
#include <cstring>
#include <limits>

#include <immintrin.h>

#include "ops/linear/linear_int16_avx2.h"

namespace octet {
namespace {

constexpr int quads = int16_block / 4;
// As in linear_int16_avx2.cc; a row's share of a tile is two thirds of that there.
constexpr std::int64_t blocks_at_once = 32;

// 32 elements of a row of x. A packed tile is [k / 32][rows] of these.
struct Int8Block {
  std::int8_t quants[int16_block];
  float scale;              // d
  float sum;                // float(sum of quants) * d
  std::int32_t offset_sum;  // what the type's offset times the quants adds up to
  std::int32_t unused[5];
};
static_assert(sizeof(Int8Block) == 64);

// 32 elements of sixteen outputs, without the type's offset taken; four of an output lie together.
struct Int8PanelBlock {
  std::uint8_t quants[quads][int16_panel_outputs][4];
  float scale[int16_panel_outputs];
  float minimum[int16_panel_outputs];
};

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

// Writes a group of 32 elements, and the groups after it in the section.
template <class Type, int group>
[[gnu::always_inline]] inline void store_groups(const EightBlocks& blocks, int section,
                                                int first_output, Int8PanelBlock* to) {
  __m256i rows[8];
  for (int row = 0; row < 8; ++row) rows[row] = bytes_of<Type, group>(blocks, row, section);
  __m256i fours[8];
  transpose(rows, fours);
  for (int i = 0; i < quads; ++i) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to->quants[i][first_output]), fours[i]);
  }
  if constexpr (group + 1 < Type::groups) {
    store_groups<Type, group + 1>(blocks, section, first_output, to + 1);
  }
}

template <class Type>
void decode_eight(const WeightRows& weights, int first_output, Int8PanelBlock* to) {
  EightRows<Type> rows(weights, first_output);
  for (std::int64_t i = 0; i < weights.k / Type::block_elements; ++i) {
    rows.prefetch_next(i);
    const EightBlocks blocks = rows.block(i);
    const auto scales = Type::scales(blocks);
    for (int j = 0; j < Type::block_elements / int16_block; ++j) {
      _mm256_storeu_ps(to[j].scale + first_output, scales.scale[j]);
      if constexpr (Type::minima) {
        _mm256_storeu_ps(to[j].minimum + first_output, scales.minimum[j]);
      }
    }
    for (int section = 0; section < Type::sections; ++section) {
      store_groups<Type, 0>(blocks, section, first_output, to);
      to += Type::groups;
    }
  }
}

template <class Type>
void decode_panel(const WeightRows& weights, Arithmetic, void* panel) {
  auto* to = static_cast<Int8PanelBlock*>(panel);
  for (int first = 0; first < int16_panel_outputs; first += 8) {
    decode_eight<Type>(weights, first, to);
  }
}

// Int16Sums of pairs of products, in words, of the quads from `first` on: of two products if
// `start`.
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
                                        const __m256i totals[rows][2], Int16Sums sums) {
#pragma GCC unroll 6
  for (int row = 0; row < rows; ++row) {
    const __m256 scale = _mm256_broadcast_ss(&x[row].scale);
    const __m256 x_sum = _mm256_broadcast_ss(&x[row].sum);
#pragma GCC unroll 2
    for (int vector = 0; vector < 2; ++vector) {
      __m256i total = totals[row][vector];
      if constexpr (offset) total = _mm256_sub_epi32(total, _mm256_set1_epi32(x[row].offset_sum));
      const __m256 w_scale = _mm256_loadu_ps(w.scale + 8 * vector);
      __m256 sum = _mm256_loadu_ps(sums[row] + 8 * vector);
      sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total), _mm256_mul_ps(w_scale, scale), sum);
      if constexpr (minima) {
        sum = _mm256_fmadd_ps(_mm256_loadu_ps(w.minimum + 8 * vector), x_sum, sum);
      }
      _mm256_storeu_ps(sums[row] + 8 * vector, sum);
    }
  }
}

// `five_bits`: the words of half a block become 32 bits wide at a time, else those of a block.
template <int rows, bool five_bits, bool minima, bool offset>
[[gnu::noinline]] void add_blocks(const Int8Block* x, const Int8PanelBlock* w, std::int64_t blocks,
                                  Int16Sums sums) {
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

template <int rows, bool five_bits, bool minima, bool offset>
void multiply_rows(const Int8Block* x, const Int8PanelBlock* panels, std::int64_t outputs,
                   std::int64_t blocks, const OutputTile& tile) {
  alignas(32) Int16Sums sums[max_outputs_per_multiply / int16_panel_outputs];
  const std::int64_t panel_count = (outputs + int16_panel_outputs - 1) / int16_panel_outputs;
  std::memset(sums, 0, static_cast<std::size_t>(panel_count) * sizeof(Int16Sums));
  for (std::int64_t first = 0; first < blocks; first += blocks_at_once) {
    const std::int64_t count = blocks - first < blocks_at_once ? blocks - first : blocks_at_once;
    for (std::int64_t panel = 0; panel < panel_count; ++panel) {
      add_blocks<rows, five_bits, minima, offset>(x + first * rows, panels + panel * blocks + first,
                                                  count, sums[panel]);
    }
  }
  for (std::int64_t panel = 0; panel < panel_count; ++panel) {
    const std::int64_t done = panel * int16_panel_outputs;
    const std::int64_t left = outputs - done;
    store_sums(sums[panel], rows, done, left < int16_panel_outputs ? left : int16_panel_outputs,
               tile);
  }
}

template <bool five_bits, bool minima, bool offset>
void multiply(const void* packed, int rows, const void* panels, std::int64_t outputs,
              std::int64_t padded_k, const OutputTile& tile) {
  const auto* x = static_cast<const Int8Block*>(packed);
  const auto* w = static_cast<const Int8PanelBlock*>(panels);
  const std::int64_t blocks = padded_k / int16_block;
  switch (rows) {
    case 1:
      return multiply_rows<1, five_bits, minima, offset>(x, w, outputs, blocks, tile);
    case 2:
      return multiply_rows<2, five_bits, minima, offset>(x, w, outputs, blocks, tile);
    case 3:
      return multiply_rows<3, five_bits, minima, offset>(x, w, outputs, blocks, tile);
    case 4:
      return multiply_rows<4, five_bits, minima, offset>(x, w, outputs, blocks, tile);
    case 5:
      return multiply_rows<5, five_bits, minima, offset>(x, w, outputs, blocks, tile);
    default:
      return multiply_rows<6, five_bits, minima, offset>(x, w, outputs, blocks, tile);
  }
}

template <class Type, bool five_bits>
const LinearKernels& kernels_of() {
  static_assert(!Type::halves);
  static const LinearKernels kernels = {
      .tile_rows = int16_tile_rows,
      .panel_outputs = int16_panel_outputs,
      .direct_rows = int16_direct_rows,
      .direct_bfloat16 = false,
      .k_step = int16_block,
      .packed_bytes = sizeof(Int8Block),
      .panel_bytes = sizeof(Int8PanelBlock) / int16_panel_outputs,
      .pack_rows = pack_rows<Type::offset>,
      .decode_panel = decode_panel<Type>,
      .multiply = multiply<five_bits, Type::minima, Type::offset != 0>,
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
