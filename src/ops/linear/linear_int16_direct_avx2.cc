// Arithmetic::int16 for a few rows, straight from the stored weights: eight outputs together, whose
// totals of a block one tree of additions brings into one vector, so that a fold serves eight; one
// to four rows together, which share the decoding.
#include <cstdint>

#include <immintrin.h>

#include "ops/linear/linear_panels_avx2.h"

namespace octet {
namespace {

// A vector for each row of x.
template <int rows>
struct RowVectors {
  __m256i of[rows];
};

// Partial sums of a group of 32 elements of one output. Where scales serve 16 elements, those of
// the first 16 are in the low half of a vector (words of even and odd elements lie so).
template <class Type, int group, int rows>
[[gnu::always_inline]] inline RowVectors<rows> partial_sums(const Int16Block* x, Bytes block,
                                                            int section) {
  const Words w = Type::template words<group>(block, section);
  RowVectors<rows> sums;
#pragma GCC unroll 4
  for (int row = 0; row < rows; ++row) {
    const auto* quants = reinterpret_cast<const __m256i*>(x[row].quants);
    sums.of[row] = _mm256_add_epi32(_mm256_madd_epi16(w.first, _mm256_loadu_si256(quants)),
                                    _mm256_madd_epi16(w.second, _mm256_loadu_si256(quants + 1)));
  }
  return sums;
}

template <int order>
[[gnu::always_inline]] inline __m256i shuffle(__m256i a, __m256i b) {
  return _mm256_castps_si256(
      _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), order));
}

// In each half: a0 + a2, a1 + a3, b0 + b2, b1 + b3.
template <int rows>
[[gnu::always_inline]] inline RowVectors<rows> two_outputs(const RowVectors<rows>& a,
                                                           const RowVectors<rows>& b) {
  RowVectors<rows> sums;
#pragma GCC unroll 4
  for (int row = 0; row < rows; ++row) {
    sums.of[row] = _mm256_add_epi32(_mm256_blend_epi32(a.of[row], b.of[row], 0xCC),
                                    shuffle<0x4E>(a.of[row], b.of[row]));
  }
  return sums;
}

// Of outputs `first` to first + 3: in each half a sum of each.
template <class Type, int group, int rows>
[[gnu::always_inline]] inline RowVectors<rows> four_outputs(const Int16Block* x,
                                                            const EightBlocks& blocks, int first,
                                                            int section) {
  const auto partial = [&](int output) {
    return partial_sums<Type, group, rows>(x, blocks.of(first + output), section);
  };
  const auto a = two_outputs<rows>(partial(0), partial(1));
  const auto b = two_outputs<rows>(partial(2), partial(3));
  RowVectors<rows> sums;
#pragma GCC unroll 4
  for (int row = 0; row < rows; ++row) {
    sums.of[row] =
        _mm256_add_epi32(shuffle<0x88>(a.of[row], b.of[row]), shuffle<0xDD>(a.of[row], b.of[row]));
  }
  return sums;
}

// What `offset` times the sum of x takes from the totals.
template <int offset>
[[gnu::always_inline]] inline __m256i without_offset(__m256i total, std::int32_t quant_sum) {
  if constexpr (offset == 0) return total;
  return _mm256_sub_epi32(
      total, _mm256_mullo_epi32(_mm256_set1_epi32(quant_sum), _mm256_set1_epi32(offset)));
}

// Folds the totals of eight outputs into their sums.
template <class Type, int rows>
[[gnu::always_inline]] inline void fold(const Int16Block* x, const RowVectors<rows>& low,
                                        const RowVectors<rows>& high, const __m256* scales,
                                        const __m256* minima, __m256 sums[rows]) {
#pragma GCC unroll 4
  for (int row = 0; row < rows; ++row) {
    const __m256i a = low.of[row];
    const __m256i b = high.of[row];
    const __m256 x_scale = _mm256_broadcast_ss(&x[row].scale);
    const auto add = [&](__m256i total, std::int32_t quant_sum, const float* x_sum, int part) {
      const __m256 exact = _mm256_cvtepi32_ps(without_offset<Type::offset>(total, quant_sum));
      sums[row] = _mm256_fmadd_ps(exact, _mm256_mul_ps(scales[part], x_scale), sums[row]);
      if constexpr (Type::minima) {
        sums[row] = _mm256_fmadd_ps(minima[part], _mm256_broadcast_ss(x_sum), sums[row]);
      }
    };
    if constexpr (Type::halves) {
      add(_mm256_permute2x128_si256(a, b, 0x20), x[row].half_quant_sums[0], &x[row].half_sums[0],
          0);
      add(_mm256_permute2x128_si256(a, b, 0x31), x[row].half_quant_sums[1], &x[row].half_sums[1],
          1);
    } else {
      const __m256i total =
          _mm256_add_epi32(_mm256_blend_epi32(a, b, 0xF0), _mm256_permute2x128_si256(a, b, 0x21));
      add(total, x[row].quant_sum, &x[row].sum, 0);
    }
  }
}

template <class Type>
inline constexpr int parts = Type::halves ? 2 : 1;

// The groups of a section, from `group` on.
template <class Type, int group, int rows>
[[gnu::always_inline]] inline void add_groups(const Int16Block* x, const EightBlocks& blocks,
                                              int section, const __m256* scales,
                                              const __m256* minima, __m256 sums[rows]) {
  const auto low = four_outputs<Type, group, rows>(x, blocks, 0, section);
  const auto high = four_outputs<Type, group, rows>(x, blocks, 4, section);
  fold<Type, rows>(x, low, high, scales, minima, sums);
  if constexpr (group + 1 < Type::groups) {
    add_groups<Type, group + 1, rows>(x + rows, blocks, section, scales + parts<Type>,
                                      minima + parts<Type>, sums);
  }
}

// Eight rows of a weight, of which `outputs` exist.
struct EightOutputs {
  Bytes first;
  std::int64_t row_bytes;
  std::int64_t outputs;
  std::int64_t k;
};

template <class Type, int rows>
void multiply_eight(const Int16Block* x, const EightOutputs& weights, const OutputTile& tile) {
  EightRows<Type> stored(weights.first, weights.row_bytes, weights.outputs);
  __m256 sums[rows];
#pragma GCC unroll 4
  for (int row = 0; row < rows; ++row) sums[row] = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < weights.k / Type::block_elements; ++i) {
    prefetch_next_rows<Type>(weights.first, weights.row_bytes, i);
    const EightBlocks blocks = stored.block(i);
    const auto scales = Type::scales(blocks);
    const __m256* scale = scales.scale;
    const __m256* minimum = scales.minimum;
    for (int section = 0; section < Type::sections; ++section) {
      add_groups<Type, 0, rows>(x, blocks, section, scale, minimum, sums);
      x += Type::groups * rows;
      scale += Type::groups * parts<Type>;
      minimum += Type::groups * parts<Type>;
    }
  }
  for (int row = 0; row < rows; ++row) {
    float values[8];
    _mm256_storeu_ps(values, sums[row]);
    for (int output = 0; output < 8 && output < weights.outputs; ++output) {
      tile.y[row * tile.y_stride + output] =
          tile.bias == nullptr ? values[output] : values[output] + tile.bias[output];
    }
  }
}

template <class Type, int rows>
void multiply_rows(const Int16Block* x, const WeightRows& weights, const OutputTile& tile) {
  const auto* data = reinterpret_cast<Bytes>(weights.data);
  for (std::int64_t output = 0; output < weights.outputs; output += 8) {
    multiply_eight<Type, rows>(x,
                               {.first = data + output * weights.row_bytes,
                                .row_bytes = weights.row_bytes,
                                .outputs = weights.outputs - output,
                                .k = weights.k},
                               {.y = tile.y + output,
                                .y_stride = tile.y_stride,
                                .bias = tile.bias == nullptr ? nullptr : tile.bias + output});
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
        return multiply_rows<Type, 1>(x, weights, tile);
      case 2:
        return multiply_rows<Type, 2>(x, weights, tile);
      case 3:
        return multiply_rows<Type, 3>(x, weights, tile);
      default:
        return multiply_rows<Type, 4>(x, weights, tile);
    }
  });
}

}  // namespace octet
