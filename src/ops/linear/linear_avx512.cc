// Linear kernels for AVX-512 in float32: 6 rows x 4 outputs are 24 sums of sixteen lanes, which
// leaves registers for four vectors of the panel and one of x.
//
// Order of a sum: as linear_kernels.h says, with sixteen lanes instead of eight, added pairwise at
// the end (lane i and i + 8, then + 4, + 2, + 1).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "ops/cpu/scratch.h"
#include "ops/linear/linear_avx2.h"
#include "ops/linear/with_decoder_avx2.h"

namespace octet {
namespace {

constexpr int tile_rows = 6;
constexpr int outputs_of_panel = 4;
constexpr int most_direct_rows = 4;

// Layout: [padded k / 16][rows][16].
void pack_rows(const float* x, std::int64_t x_stride, int rows, std::int64_t k,
               Arithmetic arithmetic, void* packed) {
  const bool round = arithmetic == Arithmetic::bfloat16;
  for (int row = 0; row < rows; ++row) {
    const float* from = x + row * x_stride;
    float* to = static_cast<float*>(packed) + 16 * row;
    for (std::int64_t i = 0; i < padded(k); i += 8) {
      __m256 values = _mm256_setzero_ps();
      const std::int64_t left = k - i;
      if (left > 0) {
        const auto mask = static_cast<__mmask8>(left >= 8 ? 0xFF : (1 << left) - 1);
        values = _mm256_maskz_loadu_ps(mask, from + i);
      }
      if (round) values = round_to_bfloat16_vector(values);
      _mm256_storeu_ps(to + i / 16 * 16 * rows + i % 16, values);
    }
  }
}

// Layout of a panel: [padded k / 16][4 outputs][16].
template <class Decoder, int group>
[[gnu::always_inline]] inline void store_groups(Bytes block, const typename Decoder::Scales& scales,
                                                int section, bool round, float* to) {
  const auto quants = Decoder::template load<group>(block, section);
  const __m256 vectors[4] = {Decoder::template vector<group, 0>(quants, scales, section),
                             Decoder::template vector<group, 1>(quants, scales, section),
                             Decoder::template vector<group, 2>(quants, scales, section),
                             Decoder::template vector<group, 3>(quants, scales, section)};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i / 2 * 16 * outputs_of_panel + 8 * (i % 2),
                     round ? round_to_bfloat16_vector(vectors[i]) : vectors[i]);
  }
  if constexpr (group + 1 < Decoder::groups) {
    store_groups<Decoder, group + 1>(block, scales, section, round, to + 32 * outputs_of_panel);
  }
}

template <class Decoder>
void decode_row(Bytes row, std::int64_t k, bool round, float* to) {
  const auto decode_block = [&](Bytes block) {
    const auto scales = Decoder::prepare(block);
    for (int section = 0; section < Decoder::sections; ++section) {
      store_groups<Decoder, 0>(block, scales, section, round, to);
      to += 32 * Decoder::groups * outputs_of_panel;
    }
  };
  for (std::int64_t i = 0; i < k / Decoder::block_elements; ++i) {
    decode_block(row + i * Decoder::block_bytes);
  }
  if constexpr (Decoder::is_plain) {
    if (k % Decoder::block_elements != 0) {
      unsigned char tail[Decoder::block_bytes];
      copy_tail<Decoder>(row, k, tail);
      decode_block(tail);
    }
  }
}

// Codes whose scales lie apart are decoded by AVX2, two outputs at a time, [padded k / 8][2][8].
void decode_float8(const WeightRows& weights, bool round, float* panel) {
  thread_local Scratch scratch;
  auto* floats = static_cast<float*>(
      scratch.reserve(static_cast<std::size_t>(padded(weights.k)) * 2 * sizeof(float)));
  for (std::int64_t first = 0; first < weights.outputs; first += 2) {
    WeightRows two = weights;
    two.data += first * weights.row_bytes;
    two.first_row += first;
    two.outputs = std::min<std::int64_t>(weights.outputs - first, 2);
    decode_panel_float8_avx2(two, floats);
    for (std::int64_t output = 0; output < two.outputs; ++output) {
      for (std::int64_t i = 0; i < padded(weights.k); i += 8) {
        const __m256 values = _mm256_loadu_ps(floats + 2 * i + 8 * output);
        _mm256_storeu_ps(panel + i / 16 * 16 * outputs_of_panel + 16 * (first + output) + i % 16,
                         round ? round_to_bfloat16_vector(values) : values);
      }
    }
  }
}

void decode_panel(const WeightRows& weights, Arithmetic arithmetic, void* panel) {
  const bool round = arithmetic == Arithmetic::bfloat16;
  for (std::int64_t output = weights.outputs; output < outputs_of_panel; ++output) {
    for (std::int64_t i = 0; i < padded(weights.k); i += 16) {
      _mm512_storeu_ps(static_cast<float*>(panel) + i * outputs_of_panel + 16 * output,
                       _mm512_setzero_ps());
    }
  }
  if (weights.dtype == DataType::float8_e4m3) {
    return decode_float8(weights, round, static_cast<float*>(panel));
  }
  with_decoder(weights.dtype, [&](auto decoder) {
    const auto* data = reinterpret_cast<Bytes>(weights.data);
    for (std::int64_t output = 0; output < weights.outputs; ++output) {
      decode_row<decltype(decoder)>(data + output * weights.row_bytes, weights.k, round,
                                    static_cast<float*>(panel) + 16 * output);
    }
  });
}

template <int rows>
void multiply_panel(const float* x, const float* w, std::int64_t padded_k, std::int64_t first,
                    std::int64_t outputs, const OutputTile& tile) {
  __m512 sums[rows][outputs_of_panel];
#pragma GCC unroll 8
  for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 4
    for (int output = 0; output < outputs_of_panel; ++output) {
      sums[row][output] = _mm512_setzero_ps();
    }
  }
  for (std::int64_t k = 0; k < padded_k; k += 16) {
    __m512 columns[outputs_of_panel];
#pragma GCC unroll 4
    for (int output = 0; output < outputs_of_panel; ++output) {
      columns[output] = _mm512_loadu_ps(w + 16 * output);
    }
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) {
      const __m512 value = _mm512_loadu_ps(x + 16 * row);
#pragma GCC unroll 4
      for (int output = 0; output < outputs_of_panel; ++output) {
        sums[row][output] = _mm512_fmadd_ps(value, columns[output], sums[row][output]);
      }
    }
    x += 16 * rows;
    w += 16 * outputs_of_panel;
  }
  // All of them, by constant indices: GCC 12 keeps sums that a variable indexes in memory.
  float totals[rows][outputs_of_panel];
#pragma GCC unroll 8
  for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 4
    for (int output = 0; output < outputs_of_panel; ++output) {
      totals[row][output] = _mm512_reduce_add_ps(sums[row][output]);
    }
  }
  for (int row = 0; row < rows; ++row) {
    for (std::int64_t output = 0; output < outputs; ++output) {
      store_sum(totals[row][output], row, first + output, tile);
    }
  }
}

void multiply(const void* packed, int rows, const void* panels, std::int64_t outputs,
              std::int64_t padded_k, const OutputTile& tile) {
  const auto* x = static_cast<const float*>(packed);
  for (std::int64_t first = 0; first < outputs; first += outputs_of_panel) {
    const float* w = static_cast<const float*>(panels) + first * padded_k;
    const std::int64_t count =
        outputs - first < outputs_of_panel ? outputs - first : outputs_of_panel;
    switch (rows) {
      case 1:
        multiply_panel<1>(x, w, padded_k, first, count, tile);
        break;
      case 2:
        multiply_panel<2>(x, w, padded_k, first, count, tile);
        break;
      case 3:
        multiply_panel<3>(x, w, padded_k, first, count, tile);
        break;
      case 4:
        multiply_panel<4>(x, w, padded_k, first, count, tile);
        break;
      case 5:
        multiply_panel<5>(x, w, padded_k, first, count, tile);
        break;
      default:
        multiply_panel<6>(x, w, padded_k, first, count, tile);
        break;
    }
  }
}

[[gnu::always_inline]] inline __m512 join(__m256 low, __m256 high) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

template <class Decoder, int group, int rows>
[[gnu::always_inline]] inline void direct_groups(const float* x, Bytes block,
                                                 const typename Decoder::Scales& scales,
                                                 int section, __m512 sums[rows]) {
  const auto quants = Decoder::template load<group>(block, section);
  const __m512 low = join(Decoder::template vector<group, 0>(quants, scales, section),
                          Decoder::template vector<group, 1>(quants, scales, section));
  const __m512 high = join(Decoder::template vector<group, 2>(quants, scales, section),
                           Decoder::template vector<group, 3>(quants, scales, section));
#pragma GCC unroll 4
  for (int row = 0; row < rows; ++row) {
    sums[row] = _mm512_fmadd_ps(_mm512_loadu_ps(x + 16 * row), low, sums[row]);
    sums[row] = _mm512_fmadd_ps(_mm512_loadu_ps(x + 16 * (rows + row)), high, sums[row]);
  }
  if constexpr (group + 1 < Decoder::groups) {
    direct_groups<Decoder, group + 1, rows>(x + 32 * rows, block, scales, section, sums);
  }
}

template <class Decoder, int rows>
void direct_output(const float* x, Bytes row, std::int64_t k, std::int64_t output,
                   const OutputTile& tile) {
  __m512 sums[rows];
#pragma GCC unroll 4
  for (int i = 0; i < rows; ++i) sums[i] = _mm512_setzero_ps();
  const auto add_block = [&](Bytes block) __attribute__((always_inline)) {
    const auto scales = Decoder::prepare(block);
    for (int section = 0; section < Decoder::sections; ++section) {
      direct_groups<Decoder, 0, rows>(x, block, scales, section, sums);
      x += 32 * Decoder::groups * rows;
    }
  };
  for (std::int64_t i = 0; i < k / Decoder::block_elements; ++i) {
    add_block(row + i * Decoder::block_bytes);
  }
  if constexpr (Decoder::is_plain) {
    if (k % Decoder::block_elements != 0) {
      unsigned char tail[Decoder::block_bytes];
      copy_tail<Decoder>(row, k, tail);
      add_block(tail);
    }
  }
  for (int i = 0; i < rows; ++i) store_sum(_mm512_reduce_add_ps(sums[i]), i, output, tile);
}

void direct_float8(const void* packed, int rows, const WeightRows& weights,
                   const OutputTile& tile) {
  thread_local Scratch scratch;
  void* panel = scratch.reserve(static_cast<std::size_t>(padded(weights.k)) * outputs_of_panel *
                                sizeof(float));
  for (std::int64_t first = 0; first < weights.outputs; first += outputs_of_panel) {
    WeightRows part = weights;
    part.data += first * weights.row_bytes;
    part.first_row += first;
    part.outputs = std::min<std::int64_t>(weights.outputs - first, outputs_of_panel);
    decode_panel(part, Arithmetic::float32, panel);
    multiply(packed, rows, panel, part.outputs, padded(weights.k),
             {tile.y + first, tile.y_stride, tile.bias == nullptr ? nullptr : tile.bias + first});
  }
}

void multiply_direct(const void* packed, int rows, const WeightRows& weights,
                     const OutputTile& tile) {
  if (weights.dtype == DataType::float8_e4m3) return direct_float8(packed, rows, weights, tile);
  const auto* x = static_cast<const float*>(packed);
  with_decoder(weights.dtype, [&](auto decoder) {
    using Decoder = decltype(decoder);
    const auto* data = reinterpret_cast<Bytes>(weights.data);
    for (std::int64_t output = 0; output < weights.outputs; ++output) {
      Bytes row = data + output * weights.row_bytes;
      switch (rows) {
        case 1:
          direct_output<Decoder, 1>(x, row, weights.k, output, tile);
          break;
        case 2:
          direct_output<Decoder, 2>(x, row, weights.k, output, tile);
          break;
        case 3:
          direct_output<Decoder, 3>(x, row, weights.k, output, tile);
          break;
        default:
          direct_output<Decoder, 4>(x, row, weights.k, output, tile);
          break;
      }
    }
  });
}

constexpr LinearKernels kernels = {.tile_rows = tile_rows,
                                   .panel_outputs = outputs_of_panel,
                                   .most_outputs = 48,
                                   .direct_rows = most_direct_rows,
                                   .direct_bfloat16 = false,
                                   .k_step = k_step_avx2,
                                   .packed_bytes = k_step_avx2 * sizeof(float),
                                   .panel_bytes = k_step_avx2 * sizeof(float),
                                   .pack_rows = pack_rows,
                                   .decode_panel = decode_panel,
                                   .multiply = multiply,
                                   .multiply_direct = multiply_direct};

}  // namespace

const LinearKernels& linear_kernels_avx512() { return kernels; }

}  // namespace octet
