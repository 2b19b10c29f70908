// Linear kernels for AVX2, FMA and F16C. The tile of 6 rows x 2 outputs (12 accumulators of 8
// lanes) covers the latency of a fused multiply-add (4 cycles x 2 per cycle = 8 in flight) and
// leaves four registers for the operands; per 12 multiply-adds it reads eight vectors, of which the
// two of the panel come from the second-level cache (11 bytes a cycle), the six of x from the
// first. 512 rows, N x K = 1536 x 576: 88 GFLOPS on one Zen 3 core, 85 % of the 103.6 that
// multiply-adds in registers reach there.
#include "ops/linear/linear_avx2.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

namespace octet {
namespace {

constexpr int tile_rows = 6;
constexpr int panel_outputs = panel_outputs_avx2;
constexpr int most_outputs = 48;
// Elements of k between visits to the accumulators in memory: 6 rows x 768 x 4 bytes (18 KB) and
// two panel rows of it (6 KB) fit a first-level cache of 32 KB.
constexpr std::int64_t k_block = 768;
constexpr int accumulators = tile_rows * panel_outputs;

inline __m256 round_if(bool wanted, __m256 value) {
  return wanted ? round_to_bfloat16_vector(value) : value;
}

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
  alignas(32) __m256 sums[most_outputs / panel_outputs][accumulators];
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

constexpr LinearKernels kernels = {.tile_rows = tile_rows,
                                   .panel_outputs = panel_outputs,
                                   .most_outputs = most_outputs,
                                   .direct_rows = direct_rows_avx2,
                                   .direct_bfloat16 = false,
                                   .k_step = k_step_avx2,
                                   .packed_bytes = k_step_avx2 * sizeof(float),
                                   .panel_bytes = k_step_avx2 * sizeof(float),
                                   .pack_rows = pack_rows,
                                   .decode_panel = decode_panel_avx2,
                                   .multiply = multiply,
                                   .multiply_direct = multiply_direct_avx2};

}  // namespace

const LinearKernels& linear_kernels_avx2() { return kernels; }

}  // namespace octet
