// Arithmetic::int16 (linear_int16.h) for AVX2: packing x, and tiles of 6 rows x 16 outputs.
//
// vpmaddwd multiplies sixteen pairs of 16 bits where a fused multiply-add does eight, and on Zen 3
// both issue twice a cycle; the additions after it use the two other pipes. Twelve sums, two
// vectors of the panel, a pair of x and a product are the sixteen registers. The folds, four
// operations for each sum and block, are 8 % of the rest.
#include <cstdint>
#include <cstring>
#include <limits>

#include <immintrin.h>

#include "ops/linear/linear_panels_avx2.h"

namespace octet {
namespace {

// The largest magnitude of 32 elements, as bits: those of NaN and infinity are the largest.
[[gnu::always_inline]] inline std::uint32_t largest_magnitude_bits(const __m256 x[4]) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  const auto bits = [&](int i) { return _mm256_and_si256(_mm256_castps_si256(x[i]), magnitude); };
  const __m256i eight =
      _mm256_max_epi32(_mm256_max_epi32(bits(0), bits(1)), _mm256_max_epi32(bits(2), bits(3)));
  const __m128i four =
      _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return static_cast<std::uint32_t>(
      _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xB1))));
}

[[gnu::always_inline]] inline int sum_of_words(__m256i words) {
  const __m256i eight = _mm256_madd_epi16(words, _mm256_set1_epi16(1));
  const __m128i four =
      _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
}

// Sixteen numbers of 32 bits as words, in order.
[[gnu::always_inline]] inline __m256i packed_words(__m256i low, __m256i high) {
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
}

template <bool even_odd>
void pack_block(const float* from, float steps, Int16Block* block) {
  constexpr std::uint32_t infinity = 0x7F800000u;
  __m256 x[4];
  for (int i = 0; i < 4; ++i) x[i] = _mm256_loadu_ps(from + 8 * i);
  const std::uint32_t largest = largest_magnitude_bits(x);
  if (largest >= infinity) {
    std::memset(block, 0, sizeof(*block));
    const float nan = std::numeric_limits<float>::quiet_NaN();
    block->scale = block->sum = block->half_sums[0] = block->half_sums[1] = nan;
    return;
  }
  float magnitude;
  std::memcpy(&magnitude, &largest, sizeof(magnitude));
  const float wanted = magnitude * (1.0f / steps);
  const float scale = wanted > least_int16_scale ? wanted : least_int16_scale;
  const __m256 inverse = _mm256_set1_ps(1.0f / scale);
  __m256i halves[2];
  for (int half = 0; half < 2; ++half) {
    const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(x[2 * half], inverse));
    const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(x[2 * half + 1], inverse));
    halves[half] = packed_words(low, high);
    block->half_quant_sums[half] = sum_of_words(halves[half]);
    block->half_sums[half] = static_cast<float>(block->half_quant_sums[half]) * scale;
  }
  block->scale = scale;
  block->quant_sum = block->half_quant_sums[0] + block->half_quant_sums[1];
  block->sum = static_cast<float>(block->quant_sum) * scale;
  block->unused = 0;
  auto* to = reinterpret_cast<__m256i*>(block->quants);
  if constexpr (even_odd) {
    const auto even = [](__m256i words) {
      return _mm256_srai_epi32(_mm256_slli_epi32(words, 16), 16);
    };
    const auto odd = [](__m256i words) { return _mm256_srai_epi32(words, 16); };
    _mm256_storeu_si256(to, packed_words(even(halves[0]), even(halves[1])));
    _mm256_storeu_si256(to + 1, packed_words(odd(halves[0]), odd(halves[1])));
  } else {
    _mm256_storeu_si256(to, halves[0]);
    _mm256_storeu_si256(to + 1, halves[1]);
  }
}

// Layout: [k / 32][rows].
template <bool even_odd, bool int8>
void pack_rows(const float* x, std::int64_t x_stride, int rows, std::int64_t k, Arithmetic,
               void* packed) {
  auto* blocks = static_cast<Int16Block*>(packed);
  for (int row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < k / int16_block; ++i) {
      pack_block<even_odd>(x + row * x_stride + i * int16_block, int8 ? int8_steps : int16_steps,
                           &blocks[i * rows + row]);
    }
  }
}

// Adds one block, or half of one (whose even and odd elements are four pairs each), to the sums.
template <int rows, bool halves, bool minima>
[[gnu::always_inline]] inline void add_fold(const Int16Block* x, const Int16PanelBlock& w, int half,
                                            PanelSums sums) {
  constexpr int pairs = halves ? int16_half_block / 2 : int16_block / 2;
  __m256i products[rows][2];
#pragma GCC unroll 6
  for (int row = 0; row < rows; ++row) {
    products[row][0] = _mm256_setzero_si256();
    products[row][1] = _mm256_setzero_si256();
  }
  // The sums stay in memory: GCC 12 would take them out of the loop and then spill the products.
  asm volatile("" : : : "memory");
#pragma GCC unroll 16
  for (int i = 0; i < pairs; ++i) {
    const int pair = halves ? 8 * (i / 4) + 4 * half + i % 4 : i;
    const auto* panel = reinterpret_cast<const __m256i*>(w.quants[pair]);
    const __m256i w0 = _mm256_loadu_si256(panel);
    const __m256i w1 = _mm256_loadu_si256(panel + 1);
#pragma GCC unroll 6
    for (int row = 0; row < rows; ++row) {
      std::int32_t both;
      std::memcpy(&both, x[row].quants + 2 * pair, sizeof(both));
      const __m256i value = _mm256_set1_epi32(both);
      products[row][0] = _mm256_add_epi32(products[row][0], _mm256_madd_epi16(value, w0));
      products[row][1] = _mm256_add_epi32(products[row][1], _mm256_madd_epi16(value, w1));
      // In this order: GCC 12 multiplies all rows first, for which it has no registers.
      asm volatile("" : "+x"(products[row][0]), "+x"(products[row][1]));
    }
  }
#pragma GCC unroll 6
  for (int row = 0; row < rows; ++row) {
    const __m256 scale = _mm256_broadcast_ss(&x[row].scale);
    const __m256 x_sum = _mm256_broadcast_ss(halves ? &x[row].half_sums[half] : &x[row].sum);
#pragma GCC unroll 2
    for (int vector = 0; vector < 2; ++vector) {
      const __m256 w_scale = _mm256_loadu_ps(w.folds[half].scale + 8 * vector);
      __m256 sum = _mm256_loadu_ps(sums[row] + 8 * vector);
      sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(products[row][vector]),
                            _mm256_mul_ps(w_scale, scale), sum);
      if constexpr (minima) {
        sum = _mm256_fmadd_ps(_mm256_loadu_ps(w.folds[half].minimum + 8 * vector), x_sum, sum);
      }
      _mm256_storeu_ps(sums[row] + 8 * vector, sum);
    }
  }
}

template <bool halves, bool minima>
struct Int16Kernel {
  using Block = Int16Block;
  using PanelBlock = Int16PanelBlock;
  static constexpr int tile_rows = 6;
  static constexpr int most_outputs = 48;
  static constexpr int panels_at_once = 1;
  static constexpr std::int64_t blocks_at_once = 32;  // 6 rows of them are 18 KB

  template <int rows, int>
  [[gnu::noinline]] static void add_blocks(const Int16Block* x, const Int16PanelBlock* w,
                                           std::int64_t, std::int64_t blocks, PanelSums sums) {
    for (std::int64_t i = 0; i < blocks; ++i, x += rows, ++w) {
      add_fold<rows, halves, minima>(x, *w, 0, sums);
      if constexpr (halves) add_fold<rows, halves, minima>(x, *w, 1, sums);
    }
  }
};

template <bool even_odd, bool halves, bool minima>
constexpr LinearKernels kernels = {.tile_rows = Int16Kernel<halves, minima>::tile_rows,
                                   .panel_outputs = int16_panel_outputs,
                                   .most_outputs = Int16Kernel<halves, minima>::most_outputs,
                                   .direct_rows = int16_direct_rows,
                                   .direct_bfloat16 = false,
                                   .k_step = int16_block,
                                   .packed_bytes = sizeof(Int16Block),
                                   .panel_bytes = sizeof(Int16PanelBlock) / int16_panel_outputs,
                                   .pack_rows = pack_rows<even_odd, false>,
                                   .decode_panel = decode_int16_panel_avx2,
                                   .multiply = multiply<Int16Kernel<halves, minima>>,
                                   .multiply_direct = multiply_int16_direct_avx2};

}  // namespace

// The caller has seen to it that `dtype` is a block type.
const LinearKernels& linear_int16_kernels_avx2(DataType dtype) {
  const LinearKernels* found = &kernels<false, false, false>;
  with_words(dtype, [&found](auto type) {
    using Type = decltype(type);
    found = &kernels<Type::even_odd, Type::halves, Type::minima>;
  });
  return *found;
}

PackRows pack_int8_as_words_avx2(bool even_odd) {
  return even_odd ? pack_rows<true, true> : pack_rows<false, true>;
}

}  // namespace octet
