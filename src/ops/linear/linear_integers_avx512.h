// Tiles of Arithmetic::int16 and int8 in registers of 512 bits: 12 rows x 32 outputs are 24 sums.
// Packing and panels are those of AVX2 (linear_int16_avx2.h), and so are the few rows of a decode
// step, which memory bounds. Internal: for the *_avx512*.cc files alone, each of which has its own
// copy in its own instruction set.
//
// With VNNI, vpdpwssd adds two products of words to each of sixteen sums, vpdpbusd four of bytes;
// both issue as often as a fused multiply-add. The folds, three or four operations for each sum and
// block, come on top of sixteen or eight of those: a quarter and a half of them.
#pragma once

#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "ops/linear/linear_panels_avx2.h"

namespace octet {
namespace {

// Four bytes of x for each of sixteen outputs: two words or four bytes of it.
[[gnu::always_inline]] inline __m512i broadcast(const void* x) {
  std::int32_t value;
  std::memcpy(&value, x, sizeof(value));
  return _mm512_set1_epi32(value);
}

// Adds the exact totals of a block of x, or of half of one, to the sums. `x_sum` gives that of a
// row's quants.
template <bool minima, int rows, int panels, class Block, class XSum>
[[gnu::always_inline]] inline void fold(const __m512i (&totals)[rows][panels],
                                        const PanelScales* const (&scales)[panels], const Block* x,
                                        const XSum& x_sum, PanelSums sums) {
#pragma GCC unroll 2
  for (int panel = 0; panel < panels; ++panel) {
    const __m512 w_scale = _mm512_loadu_ps(scales[panel]->scale);
    const __m512 minimum = minima ? _mm512_loadu_ps(scales[panel]->minimum) : _mm512_setzero_ps();
#pragma GCC unroll 12
    for (int row = 0; row < rows; ++row) {
      float* to = sums[panel * rows + row];
      const __m512 scale = _mm512_mul_ps(w_scale, _mm512_set1_ps(x[row].scale));
      __m512 sum =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(totals[row][panel]), scale, _mm512_loadu_ps(to));
      if constexpr (minima) sum = _mm512_fmadd_ps(minimum, _mm512_set1_ps(x_sum(row)), sum);
      _mm512_storeu_ps(to, sum);
    }
  }
}

// A panel block holds Format::steps registers of quants for sixteen outputs, each with
// Format::quants elements of an output. Format::start(x) is where the total of a row of x begins,
// Format::add(total, x, w) adds the products of a step.
template <class Format, bool halves, bool minima>
struct WideKernel {
  using Block = typename Format::Block;
  using PanelBlock = typename Format::PanelBlock;
  static constexpr int tile_rows = 12;
  static constexpr int most_outputs = 64;
  static constexpr int panels_at_once = 2;
  static constexpr std::int64_t blocks_at_once = 16;  // 12 rows of them are 12 or 18 KB

  template <int rows, int panels>
  [[gnu::noinline]] static void add_blocks(const Block* x, const PanelBlock* w,
                                           std::int64_t panel_blocks, std::int64_t blocks,
                                           PanelSums sums) {
    for (std::int64_t i = 0; i < blocks; ++i, x += rows, ++w) {
      add_fold<rows, panels>(x, w, panel_blocks, 0, sums);
      if constexpr (halves) add_fold<rows, panels>(x, w, panel_blocks, 1, sums);
    }
  }

 private:
  template <int rows, int panels>
  [[gnu::always_inline]] static void add_fold(const Block* x, const PanelBlock* w,
                                              std::int64_t panel_blocks, int half, PanelSums sums) {
    constexpr int steps = halves ? Format::steps / 2 : Format::steps;
    __m512i totals[rows][panels];
#pragma GCC unroll 12
    for (int row = 0; row < rows; ++row) {
      const __m512i start = Format::start(x[row]);
#pragma GCC unroll 2
      for (int panel = 0; panel < panels; ++panel) totals[row][panel] = start;
    }
    // The sums stay in memory: GCC 12 would take them out of the loop over blocks, then spill them.
    asm volatile("" : : : "memory");
    for (int i = 0; i < steps; ++i) {
      // Half a block has four pairs of the even elements and four of the odd ones.
      const int step = halves ? 8 * (i / 4) + 4 * half + i % 4 : i;
      __m512i quants[panels];
#pragma GCC unroll 2
      for (int panel = 0; panel < panels; ++panel) {
        quants[panel] = _mm512_loadu_si512(w[panel * panel_blocks].quants[step]);
      }
#pragma GCC unroll 12
      for (int row = 0; row < rows; ++row) {
        const __m512i value = broadcast(x[row].quants + Format::quants * step);
#pragma GCC unroll 2
        for (int panel = 0; panel < panels; ++panel) {
          totals[row][panel] = Format::add(totals[row][panel], value, quants[panel]);
          // In place: GCC 12 would copy each sum before and after.
          asm volatile("" : "+v"(totals[row][panel]));
        }
      }
    }
    const PanelScales* scales[panels];
    for (int panel = 0; panel < panels; ++panel) {
      scales[panel] = &w[panel * panel_blocks].folds[half];
    }
    const auto x_sum = [&](int row) {
      if constexpr (halves) return x[row].half_sums[half];
      return x[row].sum;
    };
    fold<minima>(totals, scales, x, x_sum, sums);
  }
};

struct WideInt16 {
  using Block = Int16Block;
  using PanelBlock = Int16PanelBlock;
  static constexpr int steps = int16_block / 2;
  static constexpr int quants = 2;
  [[gnu::always_inline]] static __m512i start(const Int16Block&) { return _mm512_setzero_si512(); }
  [[gnu::always_inline]] static __m512i add(__m512i total, __m512i x, __m512i w) {
#if defined(__AVX512VNNI__)
    return _mm512_dpwssd_epi32(total, x, w);
#else
    return _mm512_add_epi32(total, _mm512_madd_epi16(x, w));
#endif
  }
};

// AVX2's kernels with the wide tiles of `Kernel`.
template <class Kernel>
LinearKernels widened(LinearKernels kernels) {
  kernels.tile_rows = Kernel::tile_rows;
  kernels.most_outputs = Kernel::most_outputs;
  kernels.multiply = multiply<Kernel>;
  return kernels;
}

// Types with the same flags have the same kernels with AVX2, and so here.
template <bool even_odd, bool halves, bool minima>
const LinearKernels& wide_int16_kernels(DataType dtype) {
  static const LinearKernels kernels =
      widened<WideKernel<WideInt16, halves, minima>>(linear_int16_kernels_avx2(dtype));
  return kernels;
}

// The caller has seen to it that `dtype` is a block type.
const LinearKernels& wide_int16_kernels_of(DataType dtype) {
  const LinearKernels* found = nullptr;
  with_words(dtype, [&found, dtype](auto type) {
    using Type = decltype(type);
    found = &wide_int16_kernels<Type::even_odd, Type::halves, Type::minima>(dtype);
  });
  return *found;
}

}  // namespace
}  // namespace octet
