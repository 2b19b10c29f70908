// Arithmetic::int16 and int8 for AVX-512 with VNNI, which the sets with BF16 have.
#include "ops/linear/linear_integers_avx512.h"

namespace octet {
namespace {

template <bool minima>
struct WideInt8Kernel {
  using Block = Int8Block;
  using PanelBlock = Int8PanelBlock;
  static constexpr int tile_rows = wide_tile_rows;
  static constexpr int most_outputs = 64;
  static constexpr int panels_at_once = wide_panels;
  static constexpr std::int64_t blocks_at_once = 16;  // 12 rows of them are 12 KB

  template <int rows, int panels>
  [[gnu::noinline]] static void add_blocks(const Int8Block* x, const Int8PanelBlock* w,
                                           std::int64_t panel_blocks, std::int64_t blocks,
                                           PanelSums sums) {
    for (std::int64_t i = 0; i < blocks; ++i, x += rows, ++w) {
      add_block<rows, panels>(x, w, panel_blocks, sums);
    }
  }

 private:
  template <int rows, int panels>
  [[gnu::always_inline]] static void add_block(const Int8Block* x, const Int8PanelBlock* w,
                                               std::int64_t panel_blocks, PanelSums sums) {
    __m512i totals[rows][panels];
#pragma GCC unroll 12
    for (int row = 0; row < rows; ++row) {
      // vpdpbusd takes weights without sign: what their offset adds is taken beforehand.
      const __m512i start = _mm512_set1_epi32(-x[row].offset_sum);
#pragma GCC unroll 2
      for (int panel = 0; panel < panels; ++panel) totals[row][panel] = start;
    }
    // The sums stay in memory: GCC 12 would take them out of the loop over blocks, then spill them.
    asm volatile("" : : : "memory");
    for (int i = 0; i < int16_block / 4; ++i) {
      __m512i quants[panels];
#pragma GCC unroll 2
      for (int panel = 0; panel < panels; ++panel) {
        quants[panel] = _mm512_loadu_si512(w[panel * panel_blocks].quants[i]);
      }
#pragma GCC unroll 12
      for (int row = 0; row < rows; ++row) {
        const __m512i value = broadcast(x[row].quants + 4 * i);
#pragma GCC unroll 2
        for (int panel = 0; panel < panels; ++panel) {
          totals[row][panel] = _mm512_dpbusd_epi32(totals[row][panel], quants[panel], value);
          asm volatile("" : "+v"(totals[row][panel]));
        }
      }
    }
    const PanelScales* scales[panels];
    for (int panel = 0; panel < panels; ++panel) scales[panel] = w[panel * panel_blocks].folds;
    fold<minima>(
        totals, scales, x, [x](int row) { return x[row].sum; }, sums);
  }
};

template <DataType dtype, bool minima>
const LinearKernels& wide_int8_kernels() {
  static const LinearKernels kernels =
      widened<WideInt8Kernel<minima>>(linear_int8_kernels_avx2(dtype));
  return kernels;
}

}  // namespace

const LinearKernels& linear_int16_kernels_avx512_bf16(DataType dtype) {
  return wide_int16_kernels_of(dtype);
}

// The caller has asked takes_int8().
const LinearKernels& linear_int8_kernels_avx512_bf16(DataType dtype) {
  switch (dtype) {
    case DataType::q4_0:
      return wide_int8_kernels<DataType::q4_0, false>();
    case DataType::q4_1:
      return wide_int8_kernels<DataType::q4_1, true>();
    case DataType::q5_0:
      return wide_int8_kernels<DataType::q5_0, false>();
    case DataType::q5_1:
      return wide_int8_kernels<DataType::q5_1, true>();
    case DataType::q5_k:
      return wide_int8_kernels<DataType::q5_k, true>();
    default:
      return wide_int8_kernels<DataType::q4_k, true>();
  }
}

}  // namespace octet
