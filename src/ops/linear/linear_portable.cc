// Linear kernels in plain C++, in vectors of four floats that the compiler maps to whatever the
// machine has. Products and sums are rounded separately: without hardware for it a fused
// multiply-add is a library call, a hundred times slower.
#include <cstdint>
#include <cstring>
#include <span>

#include "core/bfloat16.h"
#include "files/block_decode.h"
#include "ops/linear/linear_kernels.h"

namespace octet {
namespace {

// 2 x 2 sums of eight lanes are eight vectors of four, half of the registers of x86-64's baseline.
constexpr int tile_rows = 2;
constexpr int panel_outputs = 2;
constexpr int k_step = 8;

using Vector4 = float __attribute__((vector_size(16)));

Vector4 load(const float* p) {
  Vector4 value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

struct Lanes {
  Vector4 low = {0, 0, 0, 0};
  Vector4 high = {0, 0, 0, 0};
};

// The order that linear_kernels.h states.
float sum_of(const Lanes& sum) {
  const float low = (sum.low[0] + sum.low[2]) + (sum.low[1] + sum.low[3]);
  const float high = (sum.high[0] + sum.high[2]) + (sum.high[1] + sum.high[3]);
  return low + high;
}

void round_all(float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = round_to_bfloat16(values[i]);
}

std::int64_t padded(std::int64_t k) { return (k + k_step - 1) / k_step * k_step; }

void zero_fill(float* begin, float* end) {
  for (; begin < end; ++begin) *begin = 0.0f;
}

// Layout of packed rows and of panels: [rows or outputs][padded k].
void pack_rows(const float* x, std::int64_t x_stride, int rows, std::int64_t k,
               Arithmetic arithmetic, void* packed) {
  for (int row = 0; row < rows; ++row) {
    float* to = static_cast<float*>(packed) + row * padded(k);
    if (k > 0) std::memcpy(to, x + row * x_stride, static_cast<std::size_t>(k) * sizeof(float));
    if (arithmetic == Arithmetic::bfloat16) round_all(to, k);
    zero_fill(to + k, to + padded(k));
  }
}

void decode_panel(const WeightRows& weights, Arithmetic arithmetic, void* panel) {
  const std::int64_t k = weights.k;
  for (std::int64_t output = 0; output < panel_outputs; ++output) {
    float* to = static_cast<float*>(panel) + output * padded(k);
    const bool exists = output < weights.outputs;
    if (exists) {
      decode_blocks(weights.dtype, weights.data + output * weights.row_bytes,
                    std::span(to, static_cast<std::size_t>(k)));
      if (weights.scales != nullptr) {
        apply_scales(*weights.scales, weights.first_row + output,
                     std::span(to, static_cast<std::size_t>(k)));
      }
      if (arithmetic == Arithmetic::bfloat16) round_all(to, k);
    }
    zero_fill(exists ? to + k : to, to + padded(k));
  }
}

template <int rows>
void multiply_panel(const float* x, const float* w, std::int64_t padded_k, std::int64_t outputs,
                    const OutputTile& tile) {
  Lanes sums[rows][panel_outputs];
  for (std::int64_t k = 0; k < padded_k; k += 8) {
    for (int row = 0; row < rows; ++row) {
      const Vector4 x_low = load(x + row * padded_k + k);
      const Vector4 x_high = load(x + row * padded_k + k + 4);
      for (int output = 0; output < panel_outputs; ++output) {
        sums[row][output].low += x_low * load(w + output * padded_k + k);
        sums[row][output].high += x_high * load(w + output * padded_k + k + 4);
      }
    }
  }
  for (int row = 0; row < rows; ++row) {
    for (std::int64_t output = 0; output < outputs; ++output) {
      const float sum = sum_of(sums[row][output]);
      tile.y[row * tile.y_stride + output] = tile.bias == nullptr ? sum : sum + tile.bias[output];
    }
  }
}

void multiply(const void* packed, int rows, const void* panels, std::int64_t outputs,
              std::int64_t padded_k, const OutputTile& tile) {
  const auto* x = static_cast<const float*>(packed);
  for (std::int64_t first = 0; first < outputs; first += panel_outputs) {
    const float* w = static_cast<const float*>(panels) + first * padded_k;
    const std::int64_t count = outputs - first < panel_outputs ? outputs - first : panel_outputs;
    const OutputTile part = {.y = tile.y + first,
                             .y_stride = tile.y_stride,
                             .bias = tile.bias == nullptr ? nullptr : tile.bias + first};
    if (rows == 1) {
      multiply_panel<1>(x, w, padded_k, count, part);
    } else {
      multiply_panel<tile_rows>(x, w, padded_k, count, part);
    }
  }
}

// No kernel for the stored form: decoding in scalar code takes longer than storing its results.
constexpr LinearKernels kernels = {.tile_rows = tile_rows,
                                   .panel_outputs = panel_outputs,
                                   .most_outputs = 48,
                                   .direct_rows = 0,
                                   .direct_bfloat16 = false,
                                   .k_step = k_step,
                                   .packed_bytes = k_step * sizeof(float),
                                   .panel_bytes = k_step * sizeof(float),
                                   .pack_rows = pack_rows,
                                   .decode_panel = decode_panel,
                                   .multiply = multiply,
                                   .multiply_direct = nullptr};

}  // namespace

const LinearKernels& linear_kernels_portable() { return kernels; }

}  // namespace octet
