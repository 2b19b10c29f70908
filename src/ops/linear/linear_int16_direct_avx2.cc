// Arithmetic::int16 for one to four rows, straight from the stored weights: eight outputs together,
// whose totals of a block one tree of additions brings into one vector, so that a fold serves
// eight.
#include <cstdint>

#include <immintrin.h>

#include "ops/linear/linear_int16_avx2.h"

namespace octet {
namespace {

// Totals of a group of 32 elements, or of each half of it, for eight outputs.
template <class Type, int rows>
struct Totals {
  static constexpr int parts = Type::halves ? 2 : 1;
  __m256i of[rows][parts];
};

// Of one output: eight partial sums.
template <class Type, int group, int rows>
[[gnu::always_inline]] inline Totals<Type, rows> partial_sums(const Int16Block* x, Bytes block,
                                                              int section) {
  const Words w = Type::template words<group>(block, section);
  Totals<Type, rows> sums;
#pragma GCC unroll 4
  for (int row = 0; row < rows; ++row) {
    const auto* quants = reinterpret_cast<const __m256i*>(x[row].quants);
    const __m256i first = _mm256_madd_epi16(w.first, _mm256_loadu_si256(quants));
    const __m256i second = _mm256_madd_epi16(w.second, _mm256_loadu_si256(quants + 1));
    if constexpr (Type::halves) {
      sums.of[row][0] = first;
      sums.of[row][1] = second;
    } else {
      sums.of[row][0] = _mm256_add_epi32(first, second);
    }
  }
  return sums;
}

template <class Type, int rows>
[[gnu::always_inline]] inline Totals<Type, rows> add_pairs(const Totals<Type, rows>& a,
                                                           const Totals<Type, rows>& b) {
  Totals<Type, rows> sums;
#pragma GCC unroll 4
  for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 2
    for (int part = 0; part < Totals<Type, rows>::parts; ++part) {
      sums.of[row][part] = _mm256_hadd_epi32(a.of[row][part], b.of[row][part]);
    }
  }
  return sums;
}

// Of outputs `first` to first + 3: a total in each lane of either half.
template <class Type, int group, int rows>
[[gnu::always_inline]] inline Totals<Type, rows> four_totals(const Int16Block* x,
                                                             const EightBlocks& blocks, int first,
                                                             int section) {
  const auto partial = [&](int output) {
    return partial_sums<Type, group, rows>(x, blocks.of(first + output), section);
  };
  const auto low = add_pairs<Type, rows>(partial(0), partial(1));
  const auto high = add_pairs<Type, rows>(partial(2), partial(3));
  return add_pairs<Type, rows>(low, high);
}

template <class Type, int group, int rows>
[[gnu::always_inline]] inline void add_groups(const Int16Block* x, const EightBlocks& blocks,
                                              int section, const __m256* scales,
                                              const __m256* minima, __m256 sums[rows]) {
  constexpr int parts = Totals<Type, rows>::parts;
  const auto low = four_totals<Type, group, rows>(x, blocks, 0, section);
  const auto high = four_totals<Type, group, rows>(x, blocks, 4, section);
#pragma GCC unroll 4
  for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 2
    for (int part = 0; part < parts; ++part) {
      const __m256i a = low.of[row][part];
      const __m256i b = high.of[row][part];
      const __m256i total =
          _mm256_add_epi32(_mm256_blend_epi32(a, b, 0xF0), _mm256_permute2x128_si256(a, b, 0x21));
      const __m256 scale = _mm256_mul_ps(scales[part], _mm256_broadcast_ss(&x[row].scale));
      sums[row] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total), scale, sums[row]);
      if constexpr (Type::minima) {
        const float* x_sum = Type::halves ? &x[row].half_sums[part] : &x[row].sum;
        sums[row] = _mm256_fmadd_ps(minima[part], _mm256_broadcast_ss(x_sum), sums[row]);
      }
    }
  }
  if constexpr (group + 1 < Type::groups) {
    add_groups<Type, group + 1, rows>(x + rows, blocks, section, scales + parts, minima + parts,
                                      sums);
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

template <class Type, int rows>
void direct_eight(const Int16Block* x, Bytes first, std::int64_t row_bytes, std::int64_t outputs,
                  std::int64_t k, const OutputTile& tile) {
  constexpr int parts = Totals<Type, rows>::parts;
  EightRows<Type> stored(first, row_bytes, outputs);
  __m256 sums[rows];
#pragma GCC unroll 4
  for (int row = 0; row < rows; ++row) sums[row] = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < k / Type::block_elements; ++i) {
    prefetch_next_rows<Type>(first, row_bytes, i);
    const EightBlocks blocks = stored.block(i);
    const auto scales = Type::scales(blocks);
    const __m256* scale = scales.scale;
    const __m256* minimum = scales.minimum;
    for (int section = 0; section < Type::sections; ++section) {
      add_groups<Type, 0, rows>(x, blocks, section, scale, minimum, sums);
      x += Type::groups * rows;
      scale += Type::groups * parts;
      minimum += Type::groups * parts;
    }
  }
  for (int row = 0; row < rows; ++row) {
    float values[8];
    _mm256_storeu_ps(values, sums[row]);
    for (int output = 0; output < 8 && output < outputs; ++output) {
      tile.y[row * tile.y_stride + output] =
          tile.bias == nullptr ? values[output] : values[output] + tile.bias[output];
    }
  }
}

template <class Type, int rows>
[[gnu::noinline]] void direct(const Int16Block* x, const WeightRows& weights,
                              const OutputTile& tile) {
  const auto* data = reinterpret_cast<Bytes>(weights.data);
  for (std::int64_t output = 0; output < weights.outputs; output += 8) {
    const OutputTile part = {.y = tile.y + output,
                             .y_stride = tile.y_stride,
                             .bias = tile.bias == nullptr ? nullptr : tile.bias + output};
    direct_eight<Type, rows>(x, data + output * weights.row_bytes, weights.row_bytes,
                             weights.outputs - output, weights.k, part);
  }
}

}  // namespace

void multiply_int16_direct_avx2(const void* packed, int rows, const WeightRows& weights,
                                const OutputTile& tile) {
  const auto* x = static_cast<const Int16Block*>(packed);
  with_words(weights.dtype, [&](auto type) {
    using Type = decltype(type);
    switch (rows) {
      case 1:
        return direct<Type, 1>(x, weights, tile);
      case 2:
        return direct<Type, 2>(x, weights, tile);
      case 3:
        return direct<Type, 3>(x, weights, tile);
      default:
        return direct<Type, 4>(x, weights, tile);
    }
  });
}

}  // namespace octet
