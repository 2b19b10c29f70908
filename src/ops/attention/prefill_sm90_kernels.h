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

// scaled: each token has its scales.
PrefillKernel prefill_kernel_head_dim_64(bool scaled);
PrefillKernel prefill_kernel_head_dim_128(bool scaled);
PrefillKernel prefill_kernel_head_dim_256(bool scaled);

}  // namespace octet
