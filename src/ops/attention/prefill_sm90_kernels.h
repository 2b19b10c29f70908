// The prefill kernels that are built, one table entry per shape. Internal to src/ops/attention.
#pragma once

#include <cstddef>

namespace octet {

struct PrefillParameters;

struct PrefillKernel {
  void (*function)(PrefillParameters) = nullptr;  // null: no such kernel
  std::size_t shared_bytes = 0;
  int threads = 0;
};

// e4m3 keys and values. scaled: each token has its scales.
PrefillKernel prefill_kernel_fp8_64(bool scaled);
PrefillKernel prefill_kernel_fp8_128(bool scaled);
PrefillKernel prefill_kernel_fp8_256(bool scaled);
// int8 keys and e4m3 values; each token has its scales.
PrefillKernel prefill_kernel_int8_64();
PrefillKernel prefill_kernel_int8_128();
PrefillKernel prefill_kernel_int8_256();
// bfloat16 keys and values.
PrefillKernel prefill_kernel_bfloat16_64();
PrefillKernel prefill_kernel_bfloat16_128();
PrefillKernel prefill_kernel_bfloat16_256();

}  // namespace octet
