#include "ops/attention/prefill_sm90_pick.cuh"

namespace octet {

// The fastest of the configurations measured, without spills (docs/kernels/prefill_sm90.md).
PrefillKernel prefill_kernel_head_dim_128(bool scaled) {
  return scaled ? prefill_kernel_of<PrefillConfig<128, true, 6, 2, 4, true>>()
                : prefill_kernel_of<PrefillConfig<128, false, 6, 2, 1, true>>();
}

}  // namespace octet
