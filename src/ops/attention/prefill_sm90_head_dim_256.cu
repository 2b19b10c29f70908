#include "ops/attention/prefill_sm90_pick.cuh"

namespace octet {

// The fastest of the configurations measured, without spills (docs/kernels/prefill_sm90.md).
PrefillKernel prefill_kernel_head_dim_256(bool scaled) {
  return scaled ? prefill_kernel_of<PrefillConfig<256, true, 2, 4, 4>>()
                : prefill_kernel_of<PrefillConfig<256, false, 2, 0, 1>>();
}

}  // namespace octet
