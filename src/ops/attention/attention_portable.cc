#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "core/bfloat16.h"
#include "core/float16.h"
#include "core/float8_e4m3.h"
#include "ops/attention/attention_kernels.h"
#include "ops/cpu/portable_exp.h"

namespace octet {

namespace {

template <typename Stored, typename Convert>
void decode_each(const std::byte* stored, std::int64_t count, float* out, Convert convert) {
  for (std::int64_t i = 0; i < count; ++i) {
    Stored code;
    std::memcpy(&code, stored + i * static_cast<std::int64_t>(sizeof(Stored)), sizeof(Stored));
    out[i] = convert(code);
  }
}

void decode(KvDtype dtype, const std::byte* stored, std::int64_t count, float* out) {
  switch (dtype) {
    case KvDtype::float32:
      std::memcpy(out, stored, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case KvDtype::float16:
      decode_each<std::uint16_t>(stored, count, out, float16_to_float);
      return;
    case KvDtype::bfloat16:
      decode_each<std::uint16_t>(stored, count, out, bfloat16_to_float);
      return;
    case KvDtype::fp8: {
      static const std::array<float, 256> values = [] {
        std::array<float, 256> table{};
        for (int code = 0; code < 256; ++code) {
          table[static_cast<std::size_t>(code)] =
              float8_e4m3_to_float(static_cast<std::uint8_t>(code));
        }
        return table;
      }();
      decode_each<std::uint8_t>(stored, count, out, [](std::uint8_t code) { return values[code]; });
      return;
    }
    case KvDtype::int8:
      decode_each<std::int8_t>(stored, count, out,
                               [](std::int8_t code) { return static_cast<float>(code); });
      return;
  }
}

void multiply(const float* a, int a_stride, const float* b, int b_stride, float* c, int c_stride,
              const float* scale, int rows, int depth, int columns) {
  constexpr int width = 8;
  for (int r = 0; r < rows; ++r) {
    for (int n = 0; n < columns; n += width) {
      std::array<float, width> sums{};
      float* out = c + static_cast<std::ptrdiff_t>(r) * c_stride + n;
      if (scale != nullptr) {
        for (int i = 0; i < width; ++i) sums[i] = out[i] * scale[r];
      }
      for (int k = 0; k < depth; ++k) {
        const float factor = a[static_cast<std::ptrdiff_t>(r) * a_stride + k];
        const float* row = b + static_cast<std::ptrdiff_t>(k) * b_stride + n;
        for (int i = 0; i < width; ++i) sums[i] += factor * row[i];
      }
      std::copy(sums.begin(), sums.end(), out);
    }
  }
}

float softmax_tile(const SoftmaxTile& tile) {
  if (tile.first >= tile.last) {
    std::fill_n(tile.scores, page_tokens, 0.0f);
    return 1.0f;
  }
  float maximum = *tile.maximum;
  for (int j = tile.first; j < tile.last; ++j) {
    tile.scores[j] *= tile.key_scales[j];
    maximum = std::max(maximum, tile.scores[j]);
  }
  const float alpha = portable_exp(*tile.maximum - maximum);
  float sum = 0.0f;
  for (int j = 0; j < page_tokens; ++j) {
    const bool seen = j >= tile.first && j < tile.last;
    const float weight = seen ? portable_exp(tile.scores[j] - maximum) : 0.0f;
    sum += weight;
    tile.scores[j] = seen && tile.value_scales != nullptr ? weight * tile.value_scales[j] : weight;
  }
  *tile.maximum = maximum;
  *tile.sum = *tile.sum * alpha + sum;
  return alpha;
}

float exponential(float x) { return portable_exp(x); }

}  // namespace

const AttentionKernels& attention_kernels_portable() {
  static const AttentionKernels kernels = {.fp8_divisor = 1,
                                           .decode = decode,
                                           .multiply = multiply,
                                           .multiply_stored = nullptr,
                                           .softmax_tile = softmax_tile,
                                           .exponential = exponential,
                                           .pairs = nullptr};
  return kernels;
}

}  // namespace octet
