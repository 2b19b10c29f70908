// What the AVX2 kernels of Arithmetic::int16 share. Internal: for *_avx2.cc files alone.
#pragma once

#include <cstdint>
#include <cstring>

#include "ops/linear/linear_int16.h"
#include "ops/linear/linear_kernels.h"
#include "ops/linear/weight_words_avx2.h"

namespace octet {

// 32 elements of a row of x, in the order of the type's words. A packed tile is [k / 32][rows] of
// these.
struct Int16Block {
  std::int16_t quants[int16_block];
  float scale;             // d
  float sum;               // float(sum of quants) * d
  float half_sums[2];      // the same of elements 0 to 15 and 16 to 31
  std::int32_t quant_sum;  // of all
  std::int32_t half_quant_sums[2];
  std::int32_t unused;
};
static_assert(sizeof(Int16Block) == 96);

inline constexpr int int16_tile_rows = 6;
inline constexpr int int16_panel_outputs = 16;
// Of a tile's rows and a panel's outputs.
using Int16Sums = float[int16_tile_rows][int16_panel_outputs];

// 32 elements of sixteen outputs, pairs of them as vpmaddwd takes them, in the same order. Types
// with a scale for 32 elements use the first of `folds`.
struct Int16PanelBlock {
  std::int16_t quants[int16_block / 2][int16_panel_outputs][2];
  struct {
    float scale[int16_panel_outputs];
    float minimum[int16_panel_outputs];
  } folds[2];
};

// More rows are faster through panels (Q4_1: 3.7 and 4.6 ns for 32 weights and four rows, 5.9 and
// 5.5 for six in two passes).
inline constexpr int int16_direct_rows = 4;

// As LinearKernels describes them.
void decode_int16_panel_avx2(const WeightRows& weights, Arithmetic, void* panel);
void multiply_int16_direct_avx2(const void* packed, int rows, const WeightRows& weights,
                                const OutputTile& tile);

// x for multiply_int16_direct_avx2 in the steps of Arithmetic::int8.
using PackRows = decltype(LinearKernels::pack_rows);
PackRows pack_int8_as_words_avx2(bool even_odd);

namespace {

// to[i] = element i of each of eight vectors of eight 32-bit elements.
[[gnu::always_inline]] inline void transpose(const __m256i from[8], __m256i to[8]) {
  __m256i pairs[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_epi32(from[i], from[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_epi32(from[i], from[i + 1]);
  }
  __m256i fours[8];
  for (int i = 0; i < 8; i += 4) {
    fours[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    to[i] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x20);
    to[i + 4] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x31);
  }
}

// Asks for the bytes of the eight rows after these: the hardware follows one stream well, eight
// short ones badly. Addresses past the weight's end are never read.
template <class Type>
[[gnu::always_inline]] inline void prefetch_next_rows(Bytes rows, std::int64_t row_bytes,
                                                      std::int64_t block) {
  constexpr int bytes = 8 * Type::block_bytes;
  const auto address = reinterpret_cast<std::uintptr_t>(rows) +
                       static_cast<std::uintptr_t>(8 * row_bytes + block * bytes);
  for (int offset = 0; offset < bytes; offset += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(address + static_cast<unsigned>(offset)),
                 _MM_HINT_T0);
  }
}

// Eight rows of a weight, block by block. Rows that do not exist (there are `count`) are zeros.
template <class Type>
class EightRows {
 public:
  EightRows(const unsigned char* first, std::int64_t row_bytes, std::int64_t count)
      : first_(first), row_bytes_(row_bytes), count_(count) {
    if (count < 8) std::memset(copies_, 0, sizeof(copies_));
  }
  // Those from `first_output` on, of which there may be none.
  EightRows(const WeightRows& weights, std::int64_t first_output)
      : EightRows(reinterpret_cast<Bytes>(weights.data) +
                      (weights.outputs > first_output ? first_output * weights.row_bytes : 0),
                  weights.row_bytes,
                  weights.outputs > first_output ? weights.outputs - first_output : 0) {}
  [[gnu::always_inline]] void prefetch_next(std::int64_t block) const {
    prefetch_next_rows<Type>(first_, row_bytes_, block);
  }
  [[gnu::always_inline]] EightBlocks block(std::int64_t index) {
    const unsigned char* at = first_ + index * Type::block_bytes;
    if (count_ >= 8) return {at, row_bytes_};
    for (std::int64_t row = 0; row < count_; ++row) {
      std::memcpy(copies_ + row * Type::block_bytes, at + row * row_bytes_, Type::block_bytes);
    }
    return {copies_, Type::block_bytes};
  }

 private:
  const unsigned char* first_;
  std::int64_t row_bytes_;
  std::int64_t count_;
  unsigned char copies_[8 * Type::block_bytes];
};

// A panel's outputs `first` to first + outputs - 1 of a tile.
inline void store_sums(const Int16Sums sums, int rows, std::int64_t first, std::int64_t outputs,
                       const OutputTile& tile) {
  for (int row = 0; row < rows; ++row) {
    float* y = tile.y + row * tile.y_stride + first;
    for (std::int64_t output = 0; output < outputs; ++output) {
      y[output] =
          tile.bias == nullptr ? sums[row][output] : sums[row][output] + tile.bias[first + output];
    }
  }
}

}  // namespace
}  // namespace octet
