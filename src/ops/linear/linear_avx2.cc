// Linear kernels for AVX2, FMA and F16C. The tile of 6 rows x 2 outputs (12 accumulators of 8
// lanes) covers the latency of a fused multiply-add (4 cycles x 2 per cycle = 8 in flight) and
// leaves four registers for the operands; per 12 multiply-adds it reads eight vectors, of which the
// two of the panel come from the second-level cache (11 bytes a cycle), the six of x from the
// first.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "ops/linear/linear_kernels.h"
#include "ops/linear/weight_decoder_avx2.h"

namespace octet {
namespace {

constexpr int tile_rows = 6;
constexpr int panel_outputs = 2;
constexpr int k_step = 32;
// Elements of k between visits to the accumulators in memory: 6 rows x 768 x 4 bytes (18 KB) and
// two panel rows of it (6 KB) fit a first-level cache of 32 KB.
constexpr std::int64_t k_block = 768;
constexpr int accumulators = tile_rows * panel_outputs;

// Sums of the lanes of four accumulators, in the order that linear_kernels.h states.
inline __m128 sum_lanes(__m256 a, __m256 b, __m256 c, __m256 d) {
  const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
  const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
  const __m256 abcd =
      _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xEE));
  return _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1));
}

inline __m256 round_if(bool wanted, __m256 value) {
  return wanted ? round_to_bfloat16_vector(value) : value;
}

inline std::int64_t padded(std::int64_t k) { return (k + k_step - 1) / k_step * k_step; }

// Layout: [padded k / 8][rows][8].
void pack_rows(const float* x, std::int64_t x_stride, int rows, std::int64_t k,
               Arithmetic arithmetic, void* packed) {
  const bool round = arithmetic == Arithmetic::bfloat16;
  for (int row = 0; row < rows; ++row) {
    const float* from = x + row * x_stride;
    float* to = static_cast<float*>(packed) + 8 * row;
    std::int64_t i = 0;
    for (; i + 8 <= k; i += 8) {
      _mm256_storeu_ps(to + i * rows, round_if(round, _mm256_loadu_ps(from + i)));
    }
    for (; i < padded(k); i += 8) {
      float tail[8] = {};
      if (i < k) std::memcpy(tail, from + i, static_cast<std::size_t>(k - i) * sizeof(float));
      _mm256_storeu_ps(to + i * rows, round_if(round, _mm256_loadu_ps(tail)));
    }
  }
}

// Adds the products of `steps` vectors of k to acc[row][output].
template <int rows>
inline void accumulate(const float* x, const float* w, std::int64_t steps,
                       __m256 acc[accumulators]) {
  __m256 sum[rows][panel_outputs];
#pragma GCC unroll 6
  for (int row = 0; row < rows; ++row) {
    sum[row][0] = acc[2 * row];
    sum[row][1] = acc[2 * row + 1];
  }
#pragma GCC unroll 2
  for (std::int64_t step = 0; step < steps; ++step) {
    const __m256 w0 = _mm256_loadu_ps(w);
    const __m256 w1 = _mm256_loadu_ps(w + 8);
#pragma GCC unroll 6
    for (int row = 0; row < rows; ++row) {
      const __m256 value = _mm256_loadu_ps(x + 8 * row);
      sum[row][0] = _mm256_fmadd_ps(value, w0, sum[row][0]);
      sum[row][1] = _mm256_fmadd_ps(value, w1, sum[row][1]);
    }
    x += 8 * rows;
    w += 8 * panel_outputs;
  }
#pragma GCC unroll 6
  for (int row = 0; row < rows; ++row) {
    acc[2 * row] = sum[row][0];
    acc[2 * row + 1] = sum[row][1];
  }
}

inline void store_sum(float sum, std::int64_t row, std::int64_t output, const OutputTile& tile) {
  tile.y[row * tile.y_stride + output] = tile.bias == nullptr ? sum : sum + tile.bias[output];
}

// Writes the tile of one panel; `outputs` (1 or 2) of it exist.
template <int rows>
inline void finish(const __m256 acc[accumulators], std::int64_t first_output, std::int64_t outputs,
                   const OutputTile& tile) {
  for (int row = 0; row < rows; row += 2) {
    const int next = row + 1 < rows ? row + 1 : row;
    float sums[4];
    _mm_storeu_ps(sums,
                  sum_lanes(acc[2 * row], acc[2 * row + 1], acc[2 * next], acc[2 * next + 1]));
    for (std::int64_t output = 0; output < outputs; ++output) {
      store_sum(sums[output], row, first_output + output, tile);
      if (next != row) store_sum(sums[2 + output], next, first_output + output, tile);
    }
  }
}

template <int rows>
void multiply_rows(const float* x, const float* panels, std::int64_t outputs, std::int64_t padded_k,
                   const OutputTile& tile) {
  alignas(32) __m256 sums[max_outputs_per_multiply / panel_outputs][accumulators];
  const std::int64_t panel_count = (outputs + panel_outputs - 1) / panel_outputs;
  std::int64_t k = 0;
  do {
    const std::int64_t width = padded_k - k < k_block ? padded_k - k : k_block;
    for (std::int64_t panel = 0; panel < panel_count; ++panel) {
      __m256* acc = sums[panel];
      if (k == 0) {
        for (int i = 0; i < 2 * rows; ++i) acc[i] = _mm256_setzero_ps();
      }
      accumulate<rows>(x + k * rows, panels + (panel * padded_k + k) * panel_outputs, width / 8,
                       acc);
      if (k + width == padded_k) {
        const std::int64_t first = panel * panel_outputs;
        finish<rows>(acc, first, outputs - first < 2 ? outputs - first : 2, tile);
      }
    }
    k += width;
  } while (k < padded_k);
}

void multiply(const void* packed, int rows, const void* panels, std::int64_t outputs,
              std::int64_t padded_k, const OutputTile& tile) {
  const auto* x = static_cast<const float*>(packed);
  const auto* w = static_cast<const float*>(panels);
  switch (rows) {
    case 1:
      return multiply_rows<1>(x, w, outputs, padded_k, tile);
    case 2:
      return multiply_rows<2>(x, w, outputs, padded_k, tile);
    case 3:
      return multiply_rows<3>(x, w, outputs, padded_k, tile);
    case 4:
      return multiply_rows<4>(x, w, outputs, padded_k, tile);
    case 5:
      return multiply_rows<5>(x, w, outputs, padded_k, tile);
    default:
      return multiply_rows<6>(x, w, outputs, padded_k, tile);
  }
}

// Calls add_group(w) for each group of 32 elements of a block, in order.
template <class Decoder, int group, class AddGroup>
[[gnu::always_inline]] inline void decode_section(Bytes block,
                                                  const typename Decoder::Scales& scales,
                                                  int section, const AddGroup& add_group) {
  __m256 w[4];
  Decoder::template decode<group>(block, scales, section, w);
  add_group(w);
  if constexpr (group + 1 < Decoder::groups) {
    decode_section<Decoder, group + 1>(block, scales, section, add_group);
  }
}

// The last K mod 32 elements of a plain type, padded with zeros to a block that decoders can read.
template <class Decoder>
void copy_tail(Bytes row, std::int64_t k, unsigned char block[Decoder::block_bytes]) {
  static_assert(Decoder::is_plain);
  const std::int64_t elements = k % Decoder::block_elements;
  constexpr int element_bytes = Decoder::block_bytes / Decoder::block_elements;
  std::memset(block, 0, Decoder::block_bytes);
  std::memcpy(block, row + (k - elements) * element_bytes,
              static_cast<std::size_t>(elements * element_bytes));
}

// Layout: [padded k / 8][2][8]; writes one of the two.
template <class Decoder>
void decode_row_to_panel(Bytes row, std::int64_t k, float* to) {
  const auto store_group = [&to](const __m256 w[4]) __attribute__((always_inline)) {
    for (int i = 0; i < 4; ++i) _mm256_storeu_ps(to + 8 * panel_outputs * i, w[i]);
    to += 32 * panel_outputs;
  };
  const auto decode_block = [&store_group](Bytes block) {
    const auto scales = Decoder::prepare(block);
    for (int section = 0; section < Decoder::sections; ++section) {
      decode_section<Decoder, 0>(block, scales, section, store_group);
    }
  };
  const std::int64_t blocks = k / Decoder::block_elements;
  for (std::int64_t i = 0; i < blocks; ++i) decode_block(row + i * Decoder::block_bytes);
  if constexpr (Decoder::is_plain) {
    if (k % Decoder::block_elements != 0) {
      unsigned char tail[Decoder::block_bytes];
      copy_tail<Decoder>(row, k, tail);
      decode_block(tail);
    }
  }
}

template <class Decoder>
void decode_panel_rows(const WeightRows& weights, float* panel) {
  const auto* data = reinterpret_cast<Bytes>(weights.data);
  for (int output = 0; output < panel_outputs; ++output) {
    float* to = panel + 8 * output;
    if (output < weights.outputs) {
      decode_row_to_panel<Decoder>(data + output * weights.row_bytes, weights.k, to);
    } else {
      for (std::int64_t i = 0; i < padded(weights.k); i += 8) {
        _mm256_storeu_ps(to + i * panel_outputs, _mm256_setzero_ps());
      }
    }
  }
}

// Rows of a weight that are read together, a block of each at a time.
template <class Decoder, int outputs>
struct BlockCursor {
  Bytes block;
  std::int64_t row_bytes;
  Bytes of(int output) const { return block + output * row_bytes; }
  // The hardware follows one stream well, four short ones badly (4 against 8 GB/s): ask for the
  // next rows' bytes while these are decoded. Addresses past the weight's end are never read.
  [[gnu::always_inline]] void prefetch_next_rows(int output) const {
    const auto address = reinterpret_cast<std::uintptr_t>(of(output)) +
                         static_cast<std::uintptr_t>(outputs * row_bytes);
    for (int offset = 0; offset < Decoder::block_bytes; offset += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(address + static_cast<unsigned>(offset)),
                   _MM_HINT_T0);
    }
  }
};

// Adds the products of one section of one weight row.
template <class Decoder, int rows>
[[gnu::always_inline]] inline void direct_section(const float* x, Bytes block,
                                                  const typename Decoder::Scales& scales,
                                                  int section, __m256 acc[rows]) {
  const auto add_group = [&x, acc ](const __m256 w[4]) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
      for (int row = 0; row < rows; ++row) {
        acc[row] = _mm256_fmadd_ps(_mm256_loadu_ps(x + 8 * (rows * i + row)), w[i], acc[row]);
      }
    }
    x += 32 * rows;
  };
  decode_section<Decoder, 0>(block, scales, section, add_group);
}

// `rows` rows of x times a block of `outputs` weight rows, decoded in registers. Taking the outputs
// in turn, section by section, keeps enough independent sums in flight to hide their latency.
template <class Decoder, int rows, int outputs>
[[gnu::always_inline]] inline void direct_block(const float* x,
                                                BlockCursor<Decoder, outputs> cursor,
                                                __m256 acc[outputs][rows]) {
  if constexpr (Decoder::sections == 1) {
#pragma GCC unroll 4
    for (int output = 0; output < outputs; ++output) {
      cursor.prefetch_next_rows(output);
      const auto scales = Decoder::prepare(cursor.of(output));
      direct_section<Decoder, rows>(x, cursor.of(output), scales, 0, acc[output]);
    }
  } else {
    typename Decoder::Scales scales[outputs];
    for (int output = 0; output < outputs; ++output) {
      cursor.prefetch_next_rows(output);
      scales[output] = Decoder::prepare(cursor.of(output));
    }
    for (int section = 0; section < Decoder::sections; ++section) {
#pragma GCC unroll 4
      for (int output = 0; output < outputs; ++output) {
        direct_section<Decoder, rows>(x, cursor.of(output), scales[output], section, acc[output]);
      }
      x += 32 * Decoder::groups * rows;
    }
  }
}

template <class Decoder, int rows, int outputs>
void direct_tile(const float* x, Bytes weights, std::int64_t row_bytes, std::int64_t k,
                 const OutputTile& tile) {
  __m256 acc[outputs][rows];
#pragma GCC unroll 4
  for (int output = 0; output < outputs; ++output) {
#pragma GCC unroll 4
    for (int row = 0; row < rows; ++row) acc[output][row] = _mm256_setzero_ps();
  }
  BlockCursor<Decoder, outputs> cursor = {weights, row_bytes};
  for (std::int64_t i = k / Decoder::block_elements; i > 0; --i) {
    direct_block<Decoder, rows, outputs>(x, cursor, acc);
    x += Decoder::block_elements * rows;
    cursor.block += Decoder::block_bytes;
  }
  if constexpr (Decoder::is_plain) {
    if (k % Decoder::block_elements != 0) {
      unsigned char tails[outputs][Decoder::block_bytes];
      for (int output = 0; output < outputs; ++output) {
        copy_tail<Decoder>(weights + output * row_bytes, k, tails[output]);
      }
      direct_block<Decoder, rows, outputs>(x, {tails[0], Decoder::block_bytes}, acc);
    }
  }
#pragma GCC unroll 4
  for (int row = 0; row < rows; ++row) {
    float sums[4];
    _mm_storeu_ps(sums, sum_lanes(acc[0][row], acc[1 % outputs][row], acc[2 % outputs][row],
                                  acc[3 % outputs][row]));
    for (int output = 0; output < outputs; ++output) store_sum(sums[output], row, output, tile);
  }
}

OutputTile from_output(const OutputTile& tile, std::int64_t output) {
  return {tile.y + output, tile.y_stride, tile.bias == nullptr ? nullptr : tile.bias + output};
}

template <class Decoder, int rows>
[[gnu::noinline]] void direct(const float* x, const WeightRows& weights, const OutputTile& tile) {
  constexpr int together = rows <= 2 ? 4 : 2;
  const auto* data = reinterpret_cast<Bytes>(weights.data);
  std::int64_t output = 0;
  for (; output + together <= weights.outputs; output += together) {
    direct_tile<Decoder, rows, together>(x, data + output * weights.row_bytes, weights.row_bytes,
                                         weights.k, from_output(tile, output));
  }
  for (; output < weights.outputs; ++output) {
    direct_tile<Decoder, rows, 1>(x, data + output * weights.row_bytes, weights.row_bytes,
                                  weights.k, from_output(tile, output));
  }
}

constexpr int direct_rows = 4;

// Calls action(Decoder{}) for the decoder of `dtype`.
template <class Action>
void with_decoder(DataType dtype, const Action& action) {
  switch (dtype) {
    case DataType::float32:
      return action(Float32Decoder{});
    case DataType::float16:
      return action(Float16Decoder{});
    case DataType::bfloat16:
      return action(Bfloat16Decoder{});
    case DataType::q4_0:
      return action(Q40Decoder{});
    case DataType::q4_1:
      return action(Q41Decoder{});
    case DataType::q5_0:
      return action(Q50Decoder{});
    case DataType::q5_1:
      return action(Q51Decoder{});
    case DataType::q8_0:
      return action(Q80Decoder{});
    case DataType::q4_k:
      return action(Q4KDecoder{});
    case DataType::q5_k:
      return action(Q5KDecoder{});
    case DataType::q6_k:
      return action(Q6KDecoder{});
  }
}

void decode_panel(const WeightRows& weights, Arithmetic arithmetic, void* panel) {
  auto* to = static_cast<float*>(panel);
  with_decoder(weights.dtype,
               [&](auto decoder) { decode_panel_rows<decltype(decoder)>(weights, to); });
  if (arithmetic == Arithmetic::bfloat16) {
    for (std::int64_t i = 0; i < padded(weights.k) * panel_outputs; i += 8) {
      _mm256_storeu_ps(to + i, round_to_bfloat16_vector(_mm256_loadu_ps(to + i)));
    }
  }
}

void multiply_direct(const void* packed, int rows, const WeightRows& weights,
                     const OutputTile& tile) {
  const auto* x = static_cast<const float*>(packed);
  with_decoder(weights.dtype, [&](auto decoder) {
    using Decoder = decltype(decoder);
    switch (rows) {
      case 1:
        return direct<Decoder, 1>(x, weights, tile);
      case 2:
        return direct<Decoder, 2>(x, weights, tile);
      case 3:
        return direct<Decoder, 3>(x, weights, tile);
      default:
        return direct<Decoder, 4>(x, weights, tile);
    }
  });
}

constexpr LinearKernels kernels = {.tile_rows = tile_rows,
                                   .panel_outputs = panel_outputs,
                                   .direct_rows = direct_rows,
                                   .k_step = k_step,
                                   .packed_bytes = sizeof(float),
                                   .pack_rows = pack_rows,
                                   .decode_panel = decode_panel,
                                   .multiply = multiply,
                                   .multiply_direct = multiply_direct};

}  // namespace

const LinearKernels& linear_kernels_avx2() { return kernels; }

}  // namespace octet
