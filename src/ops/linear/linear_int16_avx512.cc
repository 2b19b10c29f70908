// Arithmetic::int16 for AVX-512 without VNNI.
#include "ops/linear/linear_integers_avx512.h"

namespace octet {

const LinearKernels& linear_int16_kernels_avx512(DataType dtype) {
  return wide_int16_kernels_of(dtype);
}

}  // namespace octet
