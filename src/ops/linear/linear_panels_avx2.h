// What the panels of Arithmetic::int16 and int8 share: eight rows of a weight read together, their
// decoding into panels, and a tile of x on its way over panels. Internal: for the files of x86-64
// alone, each of which has its own copy in its own instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "ops/linear/linear_int16_avx2.h"
#include "ops/linear/weight_words_avx2.h"

namespace octet {
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

// Writes the integers of a group of 32 elements, and of the groups after it in the section, as
// Panel::store does.
template <class Panel, class Type, int group>
[[gnu::always_inline]] inline void store_groups(const EightBlocks& blocks, int section,
                                                int first_output, typename Panel::Block* to) {
  Panel::template store<Type, group>(blocks, section, first_output, to);
  if constexpr (group + 1 < Type::groups) {
    store_groups<Panel, Type, group + 1>(blocks, section, first_output, to + 1);
  }
}

template <class Type, class PanelBlock>
[[gnu::always_inline]] inline void store_scales(const EightBlocks& blocks, int first_output,
                                                PanelBlock* to) {
  constexpr int folds = Type::halves ? 2 : 1;
  const auto scales = Type::scales(blocks);
  for (int i = 0; i < Type::block_elements / int16_block; ++i) {
    for (int fold = 0; fold < folds; ++fold) {
      PanelScales& stored = to[i].folds[fold];
      _mm256_storeu_ps(stored.scale + first_output, scales.scale[i * folds + fold]);
      if constexpr (Type::minima) {
        _mm256_storeu_ps(stored.minimum + first_output, scales.minimum[i * folds + fold]);
      }
    }
  }
}

template <class Panel, class Type>
void decode_eight(const WeightRows& weights, int first_output, typename Panel::Block* to) {
  EightRows<Type> rows(weights, first_output);
  for (std::int64_t i = 0; i < weights.k / Type::block_elements; ++i) {
    rows.prefetch_next(i);
    const EightBlocks blocks = rows.block(i);
    store_scales<Type>(blocks, first_output, to);
    for (int section = 0; section < Type::sections; ++section) {
      store_groups<Panel, Type, 0>(blocks, section, first_output, to);
      to += Type::groups;
    }
  }
}

template <class Panel, class Type>
void decode_panel(const WeightRows& weights, void* panel) {
  for (int first = 0; first < int16_panel_outputs; first += 8) {
    decode_eight<Panel, Type>(weights, first, static_cast<typename Panel::Block*>(panel));
  }
}

// The sums of a tile's rows, each with the outputs of a panel.
using PanelSums = float (*)[int16_panel_outputs];

// A panel's outputs `first` to first + outputs - 1 of a tile.
inline void store_sums(const float (*sums)[int16_panel_outputs], int rows, std::int64_t first,
                       std::int64_t outputs, const OutputTile& tile) {
  for (int row = 0; row < rows; ++row) {
    float* y = tile.y + row * tile.y_stride + first;
    for (std::int64_t output = 0; output < outputs; ++output) {
      y[output] =
          tile.bias == nullptr ? sums[row][output] : sums[row][output] + tile.bias[first + output];
    }
  }
}

// LinearKernels::multiply for a tile of `rows` rows. The sums of all panels stay in memory, and
// Kernel::blocks_at_once blocks of x in the first-level cache while the panels stream through it.
//   Kernel::add_blocks<rows, panels>(x, w, panel_blocks, blocks, sums)
// adds so many blocks of `panels` neighbouring panels, of panel_blocks blocks each, to their sums.
template <class Kernel, int rows>
void multiply_rows(const typename Kernel::Block* x, const typename Kernel::PanelBlock* panels,
                   std::int64_t outputs, std::int64_t blocks, const OutputTile& tile) {
  alignas(64) float sums[Kernel::most_outputs / int16_panel_outputs][rows][int16_panel_outputs];
  const std::int64_t panel_count = (outputs + int16_panel_outputs - 1) / int16_panel_outputs;
  std::memset(sums, 0, static_cast<std::size_t>(panel_count) * sizeof(sums[0]));
  for (std::int64_t first = 0; first < blocks; first += Kernel::blocks_at_once) {
    const std::int64_t left = blocks - first;
    const std::int64_t count = left < Kernel::blocks_at_once ? left : Kernel::blocks_at_once;
    std::int64_t panel = 0;
    for (; panel + Kernel::panels_at_once <= panel_count; panel += Kernel::panels_at_once) {
      Kernel::template add_blocks<rows, Kernel::panels_at_once>(
          x + first * rows, panels + panel * blocks + first, blocks, count, sums[panel]);
    }
    if constexpr (Kernel::panels_at_once > 1) {
      for (; panel < panel_count; ++panel) {
        Kernel::template add_blocks<rows, 1>(x + first * rows, panels + panel * blocks + first,
                                             blocks, count, sums[panel]);
      }
    }
  }
  for (std::int64_t panel = 0; panel < panel_count; ++panel) {
    const std::int64_t done = panel * int16_panel_outputs;
    const std::int64_t left = outputs - done;
    store_sums(sums[panel], rows, done, left < int16_panel_outputs ? left : int16_panel_outputs,
               tile);
  }
}

// LinearKernels::multiply.
template <class Kernel, int most_rows = Kernel::tile_rows>
void multiply(const void* packed, int rows, const void* panels, std::int64_t outputs,
              std::int64_t padded_k, const OutputTile& tile) {
  if constexpr (most_rows > 1) {
    if (rows < most_rows) {
      return multiply<Kernel, most_rows - 1>(packed, rows, panels, outputs, padded_k, tile);
    }
  }
  multiply_rows<Kernel, most_rows>(static_cast<const typename Kernel::Block*>(packed),
                                   static_cast<const typename Kernel::PanelBlock*>(panels), outputs,
                                   padded_k / int16_block, tile);
}

}  // namespace
}  // namespace octet
