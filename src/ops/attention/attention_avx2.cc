// AVX2, FMA and F16C. Sixteen registers hold 12 accumulators, two vectors of B and one factor of A.
#include <cstring>

#include <immintrin.h>

#include "ops/attention/attention_kernels.h"
#include "ops/attention/attention_stored_avx2.h"
#include "ops/cpu/vector_exp_avx2.h"

namespace octet {

namespace {

// e4m3 as binary16 / 2^8: sign extension leaves the sign in bits 15 and 14, the shift puts exponent
// and mantissa in binary16's place and the mask clears bit 14. Exact, subnormals included. e4m3's
// NaN would read as 480, so its codes are set to a binary16 NaN.
inline __m256i e4m3_to_half(__m128i codes) {
  const __m128i magnitude_mask = _mm_set1_epi8(0x7F);
  const __m128i nan = _mm_cmpeq_epi8(_mm_and_si128(codes, magnitude_mask), magnitude_mask);
  const __m256i half = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7),
                                        _mm256_set1_epi16(static_cast<short>(0xBF80)));
  return _mm256_or_si256(half, _mm256_cvtepi8_epi16(nan));
}

void decode_fp8(const std::byte* stored, std::int64_t count, float* out) {
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i half =
        e4m3_to_half(_mm_loadu_si128(reinterpret_cast<const __m128i*>(stored + i)));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm256_castsi256_si128(half)));
    _mm256_storeu_ps(out + i + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)));
  }
  if (i < count) {
    const __m256i half =
        e4m3_to_half(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(stored + i)));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm256_castsi256_si128(half)));
  }
}

void decode(KvDtype dtype, const std::byte* stored, std::int64_t count, float* out) {
  switch (dtype) {
    case KvDtype::float32:
      std::memcpy(out, stored, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case KvDtype::float16:
      for (std::int64_t i = 0; i < count; i += 8) {
        const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(stored + 2 * i));
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(half));
      }
      return;
    case KvDtype::bfloat16:
      for (std::int64_t i = 0; i < count; i += 8) {
        const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(stored + 2 * i));
        const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
        _mm256_storeu_ps(out + i, _mm256_castsi256_ps(bits));
      }
      return;
    case KvDtype::fp8:
      decode_fp8(stored, count, out);
      return;
    case KvDtype::int8:
      for (std::int64_t i = 0; i < count; i += 8) {
        const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(stored + i));
        _mm256_storeu_ps(out + i, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)));
      }
      return;
  }
}

// Rows x (8 Vectors) outputs in registers. GCC keeps such an array in registers only where it
// unrolls the loops over it early, which the pragmas ask for: without them every sum goes through
// the stack, at a third of the speed.
template <int Rows, int Vectors>
void multiply_block(const float* a, std::ptrdiff_t a_stride, const float* b,
                    std::ptrdiff_t b_stride, float* c, std::ptrdiff_t c_stride, const float* scale,
                    int depth) {
  __m256 sums[Rows][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    const __m256 factor = scale == nullptr ? _mm256_setzero_ps() : _mm256_set1_ps(scale[r]);
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      // Without a scale c may hold anything, NaN too, and is not read.
      sums[r][v] = scale == nullptr
                       ? _mm256_setzero_ps()
                       : _mm256_mul_ps(_mm256_loadu_ps(c + r * c_stride + 8 * v), factor);
    }
  }
  for (int k = 0; k < depth; ++k) {
    __m256 columns[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) columns[v] = _mm256_loadu_ps(b + 8 * v);
    b += b_stride;
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const __m256 factor = _mm256_broadcast_ss(a + r * a_stride + k);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        sums[r][v] = _mm256_fmadd_ps(factor, columns[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      _mm256_storeu_ps(c + r * c_stride + 8 * v, sums[r][v]);
    }
  }
}

template <int Rows, int Vectors>
void multiply_rows(const float* a, std::ptrdiff_t a_stride, const float* b, std::ptrdiff_t b_stride,
                   float* c, std::ptrdiff_t c_stride, const float* scale, int depth, int columns) {
  int n = 0;
  for (; n + 8 * Vectors <= columns; n += 8 * Vectors) {
    multiply_block<Rows, Vectors>(a, a_stride, b + n, b_stride, c + n, c_stride, scale, depth);
  }
  for (; n < columns; n += 8) {
    multiply_block<Rows, 1>(a, a_stride, b + n, b_stride, c + n, c_stride, scale, depth);
  }
}

void multiply(const float* a, int a_stride, const float* b, int b_stride, float* c, int c_stride,
              const float* scale, int rows, int depth, int columns) {
  int r = 0;
  const auto row_a = [&] { return a + static_cast<std::ptrdiff_t>(r) * a_stride; };
  const auto row_c = [&] { return c + static_cast<std::ptrdiff_t>(r) * c_stride; };
  const auto row_scale = [&] { return scale == nullptr ? nullptr : scale + r; };
  for (; r + 6 <= rows; r += 6) {
    multiply_rows<6, 2>(row_a(), a_stride, b, b_stride, row_c(), c_stride, row_scale(), depth,
                        columns);
  }
  switch (rows - r) {
    case 5:
      multiply_rows<5, 2>(row_a(), a_stride, b, b_stride, row_c(), c_stride, row_scale(), depth,
                          columns);
      break;
    case 4:
      multiply_rows<4, 2>(row_a(), a_stride, b, b_stride, row_c(), c_stride, row_scale(), depth,
                          columns);
      break;
    case 3:
      multiply_rows<3, 4>(row_a(), a_stride, b, b_stride, row_c(), c_stride, row_scale(), depth,
                          columns);
      break;
    case 2:
      multiply_rows<2, 4>(row_a(), a_stride, b, b_stride, row_c(), c_stride, row_scale(), depth,
                          columns);
      break;
    case 1:
      multiply_rows<1, 8>(row_a(), a_stride, b, b_stride, row_c(), c_stride, row_scale(), depth,
                          columns);
      break;
    default:
      break;
  }
}

inline float highest(__m256 x) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

inline float total(__m256 x) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

constexpr int tile_vectors = page_tokens / 8;

// The scaled scores of keys [first, last), -inf elsewhere.
void load_scores(const SoftmaxTile& tile, __m256 scores[tile_vectors]) {
  const __m256 minus_infinity = _mm256_set1_ps(-__builtin_inff());
  const __m256i first = _mm256_set1_epi32(tile.first - 1);
  const __m256i last = _mm256_set1_epi32(tile.last);
  __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
#pragma GCC unroll 8
  for (int v = 0; v < tile_vectors; ++v) {
    const __m256i seen =
        _mm256_and_si256(_mm256_cmpgt_epi32(index, first), _mm256_cmpgt_epi32(last, index));
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(tile.scores + 8 * v),
                                        _mm256_loadu_ps(tile.key_scales + 8 * v));
    // A blend, not a sum: what lies in lanes that are not seen may be NaN.
    scores[v] = _mm256_blendv_ps(minus_infinity, scaled, _mm256_castsi256_ps(seen));
    index = _mm256_add_epi32(index, _mm256_set1_epi32(8));
  }
}

// `whole`: all keys of the tile are seen, as in all tiles but the last of a long context; the same
// bits without the seven operations of 29 that masks take.
template <bool whole>
float softmax_tile_of(const SoftmaxTile& tile) {
  const __m256 minus_infinity = _mm256_set1_ps(-__builtin_inff());
  __m256 scores[tile_vectors];
  if constexpr (whole) {
#pragma GCC unroll 8
    for (int v = 0; v < tile_vectors; ++v) {
      scores[v] = _mm256_mul_ps(_mm256_loadu_ps(tile.scores + 8 * v),
                                _mm256_loadu_ps(tile.key_scales + 8 * v));
    }
  } else {
    load_scores(tile, scores);
  }
  __m256 highest_lanes = minus_infinity;
#pragma GCC unroll 8
  for (int v = 0; v < tile_vectors; ++v) highest_lanes = _mm256_max_ps(highest_lanes, scores[v]);
  const float tile_maximum = highest(highest_lanes);
  const float maximum = *tile.maximum > tile_maximum ? *tile.maximum : tile_maximum;
  const __m256 maximum_lanes = _mm256_set1_ps(maximum);
  __m256 sum = _mm256_setzero_ps();
#pragma GCC unroll 8
  for (int v = 0; v < tile_vectors; ++v) {
    __m256 weight = vector_exp(_mm256_sub_ps(scores[v], maximum_lanes));
    sum = _mm256_add_ps(sum, weight);
    if (tile.value_scales != nullptr) {
      weight = _mm256_mul_ps(weight, _mm256_loadu_ps(tile.value_scales + 8 * v));
      if constexpr (!whole) {
        // The scale of a token that is not seen may be NaN too.
        weight = _mm256_andnot_ps(_mm256_cmp_ps(scores[v], minus_infinity, _CMP_EQ_OQ), weight);
      }
    }
    _mm256_storeu_ps(tile.scores + 8 * v, weight);
  }
  const float alpha = _mm256_cvtss_f32(vector_exp(_mm256_set1_ps(*tile.maximum - maximum)));
  *tile.maximum = maximum;
  *tile.sum = *tile.sum * alpha + total(sum);
  return alpha;
}

float softmax_tile(const SoftmaxTile& tile) {
  if (tile.first >= tile.last) {
    for (int v = 0; v < tile_vectors; ++v) {
      _mm256_storeu_ps(tile.scores + 8 * v, _mm256_setzero_ps());
    }
    return 1.0f;
  }
  if (tile.first == 0 && tile.last == page_tokens) return softmax_tile_of<true>(tile);
  return softmax_tile_of<false>(tile);
}

float exponential(float x) { return _mm256_cvtss_f32(vector_exp(_mm256_set1_ps(x))); }

}  // namespace

const AttentionKernels& attention_kernels_avx2() {
  static const AttentionKernels kernels = {.fp8_divisor = 0x1p8f,
                                           .decode = decode,
                                           .multiply = multiply,
                                           .multiply_stored = multiply_stored_avx2,
                                           .softmax_tile = softmax_tile,
                                           .exponential = exponential,
                                           .pairs = nullptr};
  return kernels;
}

}  // namespace octet
