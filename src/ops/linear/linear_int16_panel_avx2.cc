// Decodes weights into the panels of Arithmetic::int16, eight rows at a time.
#include <cstdint>

#include <immintrin.h>

#include "ops/linear/linear_panels_avx2.h"

namespace octet {
namespace {

struct Int16Panel {
  using Block = Int16PanelBlock;

  template <class Type, int group>
  [[gnu::always_inline]] static void store(const EightBlocks& blocks, int section, int first_output,
                                           Int16PanelBlock* to) {
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
  }
};

}  // namespace

void decode_int16_panel_avx2(const WeightRows& weights, Arithmetic, void* panel) {
  with_words(weights.dtype,
             [&](auto type) { decode_panel<Int16Panel, decltype(type)>(weights, panel); });
}

}  // namespace octet
