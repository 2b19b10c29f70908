// One to four rows times weights that are decoded in registers. Each weight is read once; what
// bounds it is the decoding. One Zen 3 core at 3.25 GHz, weights from memory (which it reads at 18
// to 21 GB/s), GB/s of packed bytes and cycles for 32 weights from the first-level cache:
//   Q8_0 14.6, 6.5   Q6_K 8.2, 10   Q4_1 7.0, 9   Q4_0 6.8, 8   Q5_0 6.7, 10.5   Q4_K 6.2, 9
//   Q5_K 6.1, 11.5   F32 20, 6   F16 18, 4 (the latency of its four additions)
//
// Vector i of several weight rows is taken in turn, so that additions to one sum lie four cycles,
// their latency, apart. Row by row the waiting additions fill the scheduler: Q6_K took 12.5 cycles,
// Q4_K 10.
#include <cstdint>

#include <immintrin.h>

#include "ops/linear/linear_avx2.h"
#include "ops/linear/with_decoder_avx2.h"

namespace octet {
namespace {

// Rows of a weight that are read together, a block of each at a time.
template <class Decoder, int outputs>
struct BlockCursor {
  Bytes block;
  std::int64_t row_bytes;
  Bytes of(int output) const { return block + output * row_bytes; }
  // The hardware follows one stream well, four short ones badly (Q4_0: 4.3 GB/s; so 7.2): ask for
  // the next rows' bytes while these are decoded. Addresses past the weight's end are never read.
  [[gnu::always_inline]] void prefetch_next_rows(int output) const {
    const auto address = reinterpret_cast<std::uintptr_t>(of(output)) +
                         static_cast<std::uintptr_t>(outputs * row_bytes);
    for (int offset = 0; offset < Decoder::block_bytes; offset += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(address + static_cast<unsigned>(offset)),
                   _MM_HINT_T0);
    }
  }
};

// Adds the products of vector i of a group.
template <class Decoder, int group, int i, int rows, int outputs>
[[gnu::always_inline]] inline void direct_vector(const float* x,
                                                 const typename Decoder::Group quants[outputs],
                                                 const typename Decoder::Scales scales[outputs],
                                                 int section, __m256 acc[outputs][rows]) {
#pragma GCC unroll 4
  for (int output = 0; output < outputs; ++output) {
    const __m256 w = Decoder::template vector<group, i>(quants[output], scales[output], section);
#pragma GCC unroll 4
    for (int row = 0; row < rows; ++row) {
      acc[output][row] =
          _mm256_fmadd_ps(_mm256_loadu_ps(x + 8 * (rows * i + row)), w, acc[output][row]);
    }
  }
}

// Adds the products of the groups of a section, from `group` on.
template <class Decoder, int group, int rows, int outputs>
[[gnu::always_inline]] inline void direct_groups(const float* x,
                                                 const BlockCursor<Decoder, outputs>& cursor,
                                                 const typename Decoder::Scales scales[outputs],
                                                 int section, __m256 acc[outputs][rows]) {
  typename Decoder::Group quants[outputs];
#pragma GCC unroll 4
  for (int output = 0; output < outputs; ++output) {
    quants[output] = Decoder::template load<group>(cursor.of(output), section);
  }
  direct_vector<Decoder, group, 0, rows, outputs>(x, quants, scales, section, acc);
  direct_vector<Decoder, group, 1, rows, outputs>(x, quants, scales, section, acc);
  direct_vector<Decoder, group, 2, rows, outputs>(x, quants, scales, section, acc);
  direct_vector<Decoder, group, 3, rows, outputs>(x, quants, scales, section, acc);
  if constexpr (group + 1 < Decoder::groups) {
    direct_groups<Decoder, group + 1, rows, outputs>(x + 32 * rows, cursor, scales, section, acc);
  }
}

// `rows` rows of x times a block of `outputs` weight rows, decoded in registers.
template <class Decoder, int rows, int outputs>
[[gnu::always_inline]] inline void direct_block(const float* x,
                                                const BlockCursor<Decoder, outputs>& cursor,
                                                __m256 acc[outputs][rows]) {
  typename Decoder::Scales scales[outputs];
#pragma GCC unroll 4
  for (int output = 0; output < outputs; ++output) {
    cursor.prefetch_next_rows(output);
    scales[output] = Decoder::prepare(cursor.of(output));
  }
  for (int section = 0; section < Decoder::sections; ++section) {
    direct_groups<Decoder, 0, rows, outputs>(x, cursor, scales, section, acc);
    x += 32 * Decoder::groups * rows;
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

}  // namespace

void multiply_direct_avx2(const void* packed, int rows, const WeightRows& weights,
                          const OutputTile& tile) {
  const auto* x = static_cast<const float*>(packed);
  if (weights.dtype == DataType::float8_e4m3) {
    return multiply_direct_float8_avx2(x, rows, weights, tile);
  }
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

}  // namespace octet
