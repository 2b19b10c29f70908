// Decodes weights into the panels of linear_int16_avx2.cc, eight rows at a time.
#include <cstdint>

#include <immintrin.h>

#include "ops/linear/linear_int16_avx2.h"

namespace octet {
namespace {

// Writes the integers of a group of 32 elements, and of the groups after it in the section.
template <class Type, int group>
[[gnu::always_inline]] inline void store_groups(const EightBlocks& blocks, int section,
                                                int first_output, Int16PanelBlock* to) {
  __m256i halves[2][8];
  for (int row = 0; row < 8; ++row) {
    const Words words = Type::template words<group>(blocks.of(row), section);
    halves[0][row] = words.first;
    halves[1][row] = words.second;
    if constexpr (Type::offset != 0) {
      const __m256i offset = _mm256_set1_epi16(Type::offset);
      halves[0][row] = _mm256_sub_epi16(words.first, offset);
      halves[1][row] = _mm256_sub_epi16(words.second, offset);
    }
  }
  for (int half = 0; half < 2; ++half) {
    __m256i pairs[8];
    transpose(halves[half], pairs);
    for (int i = 0; i < 8; ++i) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to->quants[8 * half + i][first_output]),
                          pairs[i]);
    }
  }
  if constexpr (group + 1 < Type::groups) {
    store_groups<Type, group + 1>(blocks, section, first_output, to + 1);
  }
}

template <class Type>
[[gnu::always_inline]] inline void store_scales(const EightBlocks& blocks, int first_output,
                                                Int16PanelBlock* to) {
  constexpr int folds = Type::halves ? 2 : 1;
  const auto scales = Type::scales(blocks);
  for (int i = 0; i < Type::block_elements / int16_block; ++i) {
    for (int fold = 0; fold < folds; ++fold) {
      auto& stored = to[i].folds[fold];
      _mm256_storeu_ps(stored.scale + first_output, scales.scale[i * folds + fold]);
      if constexpr (Type::minima) {
        _mm256_storeu_ps(stored.minimum + first_output, scales.minimum[i * folds + fold]);
      }
    }
  }
}

template <class Type>
void decode_eight(const WeightRows& weights, int first_output, Int16PanelBlock* to) {
  EightRows<Type> rows(weights, first_output);
  for (std::int64_t i = 0; i < weights.k / Type::block_elements; ++i) {
    rows.prefetch_next(i);
    const EightBlocks blocks = rows.block(i);
    store_scales<Type>(blocks, first_output, to);
    for (int section = 0; section < Type::sections; ++section) {
      store_groups<Type, 0>(blocks, section, first_output, to);
      to += Type::groups;
    }
  }
}

}  // namespace

void decode_int16_panel_avx2(const WeightRows& weights, Arithmetic, void* panel) {
  auto* to = static_cast<Int16PanelBlock*>(panel);
  with_words(weights.dtype, [&](auto type) {
    using Type = decltype(type);
    for (int first = 0; first < int16_panel_outputs; first += 8) {
      decode_eight<Type>(weights, first, to);
    }
  });
}

}  // namespace octet
