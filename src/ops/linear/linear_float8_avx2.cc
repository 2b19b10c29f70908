// Weights of type float8_e4m3, whose scales lie apart from their codes (TensorScales): decoding
// into panels, and one to four rows times codes that are decoded in registers.
//
// A code becomes a float16 by moving its bits, 2^8 times too small; that and the scale, 2^8 times
// too large, are exact, so that their product is the format's, rounded once.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "ops/linear/linear_avx2.h"

namespace octet {
namespace {

using Bytes = const unsigned char*;

constexpr int panel_outputs = panel_outputs_avx2;
constexpr int block = k_step_avx2;  // codes that are decoded at once
constexpr float scale_factor = 0x1p8f;

struct EightPairs {
  __m256 low;
  __m256 high;
};

// Sixteen codes, times 2^-8. e4m3 and float16 have the same form; 0x7F and 0xFF, where float16 has
// ordinary numbers, are NaN.
[[gnu::always_inline]] inline EightPairs decode_16(Bytes codes) {
  const __m256i wide =
      _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const __m256i bits =
      _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<short>(0xBFFF)));
  const __m256i all_ones = _mm256_set1_epi16(0x3F80);
  const __m256i is_nan = _mm256_cmpeq_epi16(_mm256_and_si256(bits, all_ones), all_ones);
  const __m256i halves = _mm256_or_si256(bits, _mm256_and_si256(is_nan, _mm256_set1_epi16(0x7E00)));
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}

[[gnu::always_inline]] inline __m256 broadcast_scale(const float* scale) {
  return _mm256_mul_ps(_mm256_broadcast_ss(scale), _mm256_set1_ps(scale_factor));
}

// The scales of the rows of a weight, or 1 for all of it.
struct ScaleRows {
  static constexpr float one = 1.0f;
  const TensorScales* scales;
  std::int64_t first_row;
  std::int64_t k;

  explicit ScaleRows(const WeightRows& weights)
      : scales(weights.scales), first_row(weights.first_row), k(weights.k) {}
  const float* of_output(std::int64_t output) const {
    return scales == nullptr ? &one : scales->of_row(first_row + output);
  }
  // Columns that share a scale: a multiple of 32, or all of them.
  std::int64_t columns() const {
    return scales == nullptr ? k : std::min(scales->block_columns, k);
  }
};

void copy_tail(Bytes row, std::int64_t k, unsigned char tail[block]) {
  const std::int64_t codes = k % block;
  std::memset(tail, 0, block);
  std::memcpy(tail, row + (k - codes), static_cast<std::size_t>(codes));
}

// 32 codes to every second vector of `to`.
void decode_block_to_panel(Bytes codes, __m256 scale, float* to) {
  constexpr int step = 8 * panel_outputs;
  const EightPairs first = decode_16(codes);
  const EightPairs second = decode_16(codes + 16);
  _mm256_storeu_ps(to, _mm256_mul_ps(first.low, scale));
  _mm256_storeu_ps(to + step, _mm256_mul_ps(first.high, scale));
  _mm256_storeu_ps(to + 2 * step, _mm256_mul_ps(second.low, scale));
  _mm256_storeu_ps(to + 3 * step, _mm256_mul_ps(second.high, scale));
}

void decode_row_to_panel(Bytes row, const float* scale, std::int64_t columns, std::int64_t k,
                         float* to) {
  for (std::int64_t begin = 0; begin < k; begin += columns, ++scale) {
    const __m256 factor = broadcast_scale(scale);
    const std::int64_t end = std::min(k, begin + columns);
    std::int64_t i = begin;
    for (; i + block <= end; i += block) {
      decode_block_to_panel(row + i, factor, to + i * panel_outputs);
    }
    if (i < end) {  // of the last columns of the row
      unsigned char tail[block];
      copy_tail(row, k, tail);
      decode_block_to_panel(tail, factor, to + i * panel_outputs);
    }
  }
}

// Rows of a weight that are read together, from some column on.
template <int outputs>
struct Codes {
  Bytes first;
  std::int64_t row_bytes;
  Bytes of(int output) const { return first + output * row_bytes; }
};

// `rows` rows of x times 32 codes of each of `outputs` rows of the weight.
template <int rows, int outputs>
[[gnu::always_inline]] inline void multiply_block(const float* x, const Codes<outputs>& codes,
                                                  const __m256 scales[outputs],
                                                  __m256 acc[outputs][rows]) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    EightPairs pairs[outputs];
#pragma GCC unroll 4
    for (int output = 0; output < outputs; ++output) {
      pairs[output] = decode_16(codes.of(output) + 16 * half);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
#pragma GCC unroll 4
      for (int output = 0; output < outputs; ++output) {
        const __m256 w =
            _mm256_mul_ps(i == 0 ? pairs[output].low : pairs[output].high, scales[output]);
#pragma GCC unroll 4
        for (int row = 0; row < rows; ++row) {
          acc[output][row] = _mm256_fmadd_ps(_mm256_loadu_ps(x + 8 * (rows * (2 * half + i) + row)),
                                             w, acc[output][row]);
        }
      }
    }
  }
}

template <int rows, int outputs>
void multiply_tile(const float* x, const WeightRows& weights, std::int64_t output,
                   const OutputTile& tile) {
  const ScaleRows scale_rows(weights);
  const std::int64_t k = weights.k;
  const std::int64_t columns = scale_rows.columns();
  const Bytes data = reinterpret_cast<Bytes>(weights.data) + output * weights.row_bytes;
  __m256 acc[outputs][rows] = {};
  for (std::int64_t begin = 0; begin < k; begin += columns) {
    __m256 scales[outputs];
    for (int i = 0; i < outputs; ++i) {
      scales[i] = broadcast_scale(scale_rows.of_output(output + i) + begin / columns);
    }
    const std::int64_t end = std::min(k, begin + columns);
    std::int64_t i = begin;
    for (; i + block <= end; i += block) {
      multiply_block<rows, outputs>(x + i * rows, {data + i, weights.row_bytes}, scales, acc);
    }
    if (i < end) {
      unsigned char tails[outputs][block];
      for (int row = 0; row < outputs; ++row)
        copy_tail(data + row * weights.row_bytes, k, tails[row]);
      multiply_block<rows, outputs>(x + i * rows, {tails[0], block}, scales, acc);
    }
  }
  for (int row = 0; row < rows; ++row) {
    float sums[4];
    _mm_storeu_ps(sums, sum_lanes(acc[0][row], acc[1 % outputs][row], acc[2 % outputs][row],
                                  acc[3 % outputs][row]));
    for (int i = 0; i < outputs; ++i) store_sum(sums[i], row, output + i, tile);
  }
}

template <int rows>
void multiply_rows(const float* x, const WeightRows& weights, const OutputTile& tile) {
  constexpr int together = rows <= 2 ? 4 : 2;
  std::int64_t output = 0;
  for (; output + together <= weights.outputs; output += together) {
    multiply_tile<rows, together>(x, weights, output, tile);
  }
  for (; output < weights.outputs; ++output) multiply_tile<rows, 1>(x, weights, output, tile);
}

}  // namespace

void decode_panel_float8_avx2(const WeightRows& weights, float* panel) {
  const ScaleRows scale_rows(weights);
  for (int output = 0; output < panel_outputs; ++output) {
    float* to = panel + 8 * output;
    if (output < weights.outputs) {
      decode_row_to_panel(reinterpret_cast<Bytes>(weights.data) + output * weights.row_bytes,
                          scale_rows.of_output(output), scale_rows.columns(), weights.k, to);
    } else {
      for (std::int64_t i = 0; i < padded(weights.k); i += 8) {
        _mm256_storeu_ps(to + i * panel_outputs, _mm256_setzero_ps());
      }
    }
  }
}

void multiply_direct_float8_avx2(const float* x, int rows, const WeightRows& weights,
                                 const OutputTile& tile) {
  switch (rows) {
    case 1:
      return multiply_rows<1>(x, weights, tile);
    case 2:
      return multiply_rows<2>(x, weights, tile);
    case 3:
      return multiply_rows<3>(x, weights, tile);
    default:
      return multiply_rows<4>(x, weights, tile);
  }
}

}  // namespace octet
