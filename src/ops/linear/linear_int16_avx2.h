// What the kernels of Arithmetic::int16 and int8 for x86-64 share: x and weights as they multiply
// them. Internal to ops/linear.
#pragma once

#include <cstdint>

#include "ops/linear/linear_int16.h"
#include "ops/linear/linear_kernels.h"

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

// The same in bytes.
struct Int8Block {
  std::int8_t quants[int16_block];
  float scale;              // d
  float sum;                // float(sum of quants) * d
  std::int32_t offset_sum;  // what the type's offset times the quants adds up to
  std::int32_t unused[5];
};
static_assert(sizeof(Int8Block) == 64);

inline constexpr int int16_panel_outputs = 16;

struct PanelScales {
  float scale[int16_panel_outputs];
  float minimum[int16_panel_outputs];
};

// 32 elements of sixteen outputs, pairs of them as vpmaddwd takes them, in the order of the type's
// words. Types with a scale for 32 elements use the first of `folds`.
struct Int16PanelBlock {
  std::int16_t quants[int16_block / 2][int16_panel_outputs][2];
  PanelScales folds[2];
};

// The same for Int8Block, four elements of an output together, in their own order, and without the
// type's offset taken.
struct Int8PanelBlock {
  std::uint8_t quants[int16_block / 4][int16_panel_outputs][4];
  PanelScales folds[1];
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

}  // namespace octet
