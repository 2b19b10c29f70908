// Arithmetic::int16 and int8 for AVX-512 with VNNI, which the sets with BF16 have.
#include "ops/linear/linear_integers_avx512.h"

namespace octet {
namespace {

struct WideInt8 {
  using Block = Int8Block;
  using PanelBlock = Int8PanelBlock;
  static constexpr int steps = int16_block / 4;
  static constexpr int quants = 4;
  // vpdpbusd takes weights without sign: what their offset adds is taken beforehand.
  [[gnu::always_inline]] static __m512i start(const Int8Block& x) {
    return _mm512_set1_epi32(-x.offset_sum);
  }
  [[gnu::always_inline]] static __m512i add(__m512i total, __m512i x, __m512i w) {
    return _mm512_dpbusd_epi32(total, w, x);
  }
};

template <DataType dtype, bool minima>
const LinearKernels& wide_int8_kernels() {
  static const LinearKernels kernels =
      widened<WideKernel<WideInt8, false, minima>>(linear_int8_kernels_avx2(dtype));
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
