// AVX-512 in float32. Thirty-two registers hold 24 sums, four vectors of b and a factor of a. The
// sums are those of AVX2, term by term, so that its kernels for the stored cache serve here too.
#include "ops/attention/attention_avx512.h"

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "ops/cpu/vector_exp_avx512.h"

namespace octet {

namespace {

// Rows x (16 Vectors) outputs; `mask` is of the last vector's columns.
template <int Rows, int Vectors>
void multiply_block(const float* a, std::ptrdiff_t a_stride, const float* b,
                    std::ptrdiff_t b_stride, float* c, std::ptrdiff_t c_stride, const float* scale,
                    int depth, __mmask16 mask) {
  const auto mask_of = [mask](int v) {
    return v + 1 < Vectors ? static_cast<__mmask16>(0xFFFF) : mask;
  };
  __m512 sums[Rows][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      // Without a scale c may hold anything, NaN too, and is not read.
      sums[r][v] = scale == nullptr
                       ? _mm512_setzero_ps()
                       : _mm512_mul_ps(_mm512_maskz_loadu_ps(mask_of(v), c + r * c_stride + 16 * v),
                                       _mm512_set1_ps(scale[r]));
    }
  }
  for (int k = 0; k < depth; ++k) {
    __m512 columns[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) columns[v] = _mm512_maskz_loadu_ps(mask_of(v), b + 16 * v);
    b += b_stride;
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const __m512 factor = _mm512_set1_ps(a[r * a_stride + k]);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        sums[r][v] = _mm512_fmadd_ps(factor, columns[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      _mm512_mask_storeu_ps(c + r * c_stride + 16 * v, mask_of(v), sums[r][v]);
    }
  }
}

template <int Rows>
void multiply_rows(const float* a, std::ptrdiff_t a_stride, const float* b, std::ptrdiff_t b_stride,
                   float* c, std::ptrdiff_t c_stride, const float* scale, int depth, int columns) {
  int n = 0;
  for (; n + 64 <= columns; n += 64) {
    multiply_block<Rows, 4>(a, a_stride, b + n, b_stride, c + n, c_stride, scale, depth, 0xFFFF);
  }
  for (; n < columns; n += 16) {
    const int left = columns - n;
    const auto mask = static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1 << left) - 1);
    multiply_block<Rows, 1>(a, a_stride, b + n, b_stride, c + n, c_stride, scale, depth, mask);
  }
}

float exponential(float x) { return _mm512_cvtss_f32(vector_exp_512(_mm512_set1_ps(x))); }

}  // namespace

void attention_multiply_avx512(const float* a, int a_stride, const float* b, int b_stride, float* c,
                               int c_stride, const float* scale, int rows, int depth, int columns) {
  for (int r = 0; r < rows;) {
    const float* row_a = a + static_cast<std::ptrdiff_t>(r) * a_stride;
    float* row_c = c + static_cast<std::ptrdiff_t>(r) * c_stride;
    const float* row_scale = scale == nullptr ? nullptr : scale + r;
    const auto run = [&]<int Rows>() {
      multiply_rows<Rows>(row_a, a_stride, b, b_stride, row_c, c_stride, row_scale, depth, columns);
      r += Rows;
    };
    switch (rows - r) {
      case 1:
        run.template operator()<1>();
        break;
      case 2:
        run.template operator()<2>();
        break;
      case 3:
        run.template operator()<3>();
        break;
      case 4:
        run.template operator()<4>();
        break;
      case 5:
        run.template operator()<5>();
        break;
      default:
        run.template operator()<6>();
        break;
    }
  }
}

float attention_softmax_tile_avx512(const SoftmaxTile& tile) {
  constexpr int vectors = page_tokens / 16;
  if (tile.first >= tile.last) {
    for (int v = 0; v < vectors; ++v) _mm512_storeu_ps(tile.scores + 16 * v, _mm512_setzero_ps());
    return 1.0f;
  }
  const std::uint64_t before_last =
      tile.last >= page_tokens ? ~std::uint64_t{0} : (std::uint64_t{1} << tile.last) - 1;
  const std::uint64_t seen = before_last & (~std::uint64_t{0} << tile.first);
  const __m512 minus_infinity = _mm512_set1_ps(-__builtin_inff());
  __m512 scores[vectors];
  __m512 highest = minus_infinity;
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    // What lies in lanes that are not seen may be NaN: it is masked out, not multiplied away.
    scores[v] = _mm512_mask_mul_ps(minus_infinity, static_cast<__mmask16>(seen >> (16 * v)),
                                   _mm512_loadu_ps(tile.scores + 16 * v),
                                   _mm512_loadu_ps(tile.key_scales + 16 * v));
    highest = _mm512_max_ps(highest, scores[v]);
  }
  const float tile_maximum = _mm512_reduce_max_ps(highest);
  const float maximum = *tile.maximum > tile_maximum ? *tile.maximum : tile_maximum;
  const __m512 maximum_lanes = _mm512_set1_ps(maximum);
  __m512 sum = _mm512_setzero_ps();
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    __m512 weight = vector_exp_512(_mm512_sub_ps(scores[v], maximum_lanes));
    sum = _mm512_add_ps(sum, weight);
    if (tile.value_scales != nullptr) {
      weight = _mm512_maskz_mul_ps(static_cast<__mmask16>(seen >> (16 * v)), weight,
                                   _mm512_loadu_ps(tile.value_scales + 16 * v));
    }
    _mm512_storeu_ps(tile.scores + 16 * v, weight);
  }
  const float alpha = exponential(*tile.maximum - maximum);
  *tile.maximum = maximum;
  *tile.sum = *tile.sum * alpha + _mm512_reduce_add_ps(sum);
  return alpha;
}

const AttentionKernels& attention_kernels_avx512() {
  static const AttentionKernels kernels = {
      .fp8_divisor = attention_kernels_avx2().fp8_divisor,
      .decode = attention_kernels_avx2().decode,
      .multiply = attention_multiply_avx512,
      .multiply_stored = attention_kernels_avx2().multiply_stored,
      .softmax_tile = attention_softmax_tile_avx512,
      .exponential = exponential,
      .pairs = nullptr};
  return kernels;
}

}  // namespace octet
