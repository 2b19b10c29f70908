// Arithmetic::int16 and int8 in plain C++ (linear_int16.h): the same bits as everywhere, and what
// faster kernels are compared with.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "files/block_quants.h"
#include "ops/linear/linear_int16.h"
#include "ops/linear/linear_kernels.h"

namespace octet {
namespace {

constexpr int tile_rows = 4;
constexpr int panel_outputs = 1;

// 32 elements of a row of x.
struct Int16Block {
  std::int16_t quants[int16_block];
  float scale;         // d
  float sum;           // float(sum of quants) * d
  float half_sums[2];  // the same of elements 0 to 15 and 16 to 31
};

// 32 elements of a weight.
struct WeightBlock {
  std::int16_t quants[int16_block];
  float scales[2];  // of elements 0 to 15 and 16 to 31
  float minima[2];
};

// Of finite numbers; the bits of others are not below those of infinity.
std::uint32_t largest_magnitude_bits(const float* x) {
  std::uint32_t largest = 0;
  for (int i = 0; i < int16_block; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

void pack_block(const float* x, float steps, Int16Block* block) {
  constexpr std::uint32_t infinity = 0x7F800000u;
  *block = {};
  const std::uint32_t largest = largest_magnitude_bits(x);
  if (largest >= infinity) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    block->scale = block->sum = block->half_sums[0] = block->half_sums[1] = nan;
    return;
  }
  const float wanted = std::bit_cast<float>(largest) * (1.0f / steps);
  const float scale = wanted > least_int16_scale ? wanted : least_int16_scale;
  const float inverse = 1.0f / scale;
  // Adding 1.5 * 2^23 leaves no room for a fraction: to nearest, ties to even.
  constexpr float shift = 12582912.0f;
  int sums[2] = {0, 0};
  for (int i = 0; i < int16_block; ++i) {
    const int quant = static_cast<int>((x[i] * inverse + shift) - shift);
    block->quants[i] = static_cast<std::int16_t>(quant);
    sums[i / int16_half_block] += quant;
  }
  block->scale = scale;
  block->sum = static_cast<float>(sums[0] + sums[1]) * scale;
  for (int half = 0; half < 2; ++half) {
    block->half_sums[half] = static_cast<float>(sums[half]) * scale;
  }
}

// Layout: [k / 32][rows].
template <bool int8>
void pack_rows(const float* x, std::int64_t x_stride, int rows, std::int64_t k, Arithmetic,
               void* packed) {
  auto* blocks = static_cast<Int16Block*>(packed);
  for (int row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < k / int16_block; ++i) {
      pack_block(x + row * x_stride + i * int16_block, int8 ? int8_steps : int16_steps,
                 &blocks[i * rows + row]);
    }
  }
}

// Layout: [k / 32], of one output.
void decode_panel(const WeightRows& weights, Arithmetic, void* panel) {
  auto* to = static_cast<WeightBlock*>(panel);
  const DataTypeTraits traits = traits_of(weights.dtype);
  const int together = elements_per_scale(weights.dtype);
  const std::byte* block = weights.data;
  for (std::int64_t done = 0; done < weights.k; done += traits.block_elements) {
    BlockQuants read;
    read_quants(weights.dtype, block, &read);
    for (int i = 0; i < static_cast<int>(traits.block_elements); i += int16_block, ++to) {
      for (int j = 0; j < int16_block; ++j) to->quants[j] = read.quants[i + j];
      for (int half = 0; half < 2; ++half) {
        to->scales[half] = read.scale[(i + half * int16_half_block) / together];
        to->minima[half] = read.minimum[(i + half * int16_half_block) / together];
      }
    }
    block += traits.block_bytes;
  }
}

template <int count>
float product(const std::int16_t* a, const std::int16_t* b) {
  int sum = 0;
  for (int i = 0; i < count; ++i) sum += a[i] * b[i];
  return static_cast<float>(sum);
}

template <bool halves, bool minima>
float fold(const Int16Block& x, const WeightBlock& w, float sum) {
  if constexpr (halves) {
    for (int half = 0; half < 2; ++half) {
      const int first = half * int16_half_block;
      sum = std::fma(product<int16_half_block>(x.quants + first, w.quants + first),
                     w.scales[half] * x.scale, sum);
      if constexpr (minima) sum = std::fma(w.minima[half], x.half_sums[half], sum);
    }
  } else {
    sum = std::fma(product<int16_block>(x.quants, w.quants), w.scales[0] * x.scale, sum);
    if constexpr (minima) sum = std::fma(w.minima[0], x.sum, sum);
  }
  return sum;
}

template <bool halves, bool minima>
void multiply(const void* packed, int rows, const void* panels, std::int64_t outputs,
              std::int64_t padded_k, const OutputTile& tile) {
  const auto* x = static_cast<const Int16Block*>(packed);
  const auto* w = static_cast<const WeightBlock*>(panels);
  const std::int64_t blocks = padded_k / int16_block;
  for (std::int64_t output = 0; output < outputs; ++output, w += blocks) {
    float sums[tile_rows] = {};
    for (std::int64_t i = 0; i < blocks; ++i) {
      for (int row = 0; row < rows; ++row) {
        sums[row] = fold<halves, minima>(x[i * rows + row], w[i], sums[row]);
      }
    }
    for (int row = 0; row < rows; ++row) {
      tile.y[row * tile.y_stride + output] =
          tile.bias == nullptr ? sums[row] : sums[row] + tile.bias[output];
    }
  }
}

template <bool halves, bool minima, bool int8>
constexpr LinearKernels kernels = {.tile_rows = tile_rows,
                                   .panel_outputs = panel_outputs,
                                   .most_outputs = 48,
                                   .direct_rows = 0,
                                   .direct_bfloat16 = false,
                                   .k_step = int16_block,
                                   .packed_bytes = sizeof(Int16Block),
                                   .panel_bytes = sizeof(WeightBlock),
                                   .pack_rows = pack_rows<int8>,
                                   .decode_panel = decode_panel,
                                   .multiply = multiply<halves, minima>,
                                   .multiply_direct = nullptr};

}  // namespace

const LinearKernels& linear_int16_kernels_portable(DataType dtype) {
  const bool minima = has_minimum(dtype);
  if (elements_per_scale(dtype) == int16_half_block) {
    return minima ? kernels<true, true, false> : kernels<true, false, false>;
  }
  return minima ? kernels<false, true, false> : kernels<false, false, false>;
}

const LinearKernels& linear_int8_kernels_portable(DataType dtype) {
  return has_minimum(dtype) ? kernels<false, true, true> : kernels<false, false, true>;
}

}  // namespace octet
