#include "ops/attention/prefill_sm90_pick.cuh"

namespace octet {

// The fastest of the configurations measured, without spills (docs/kernels/prefill_sm90.md).
PrefillKernel prefill_kernel_head_dim_64(bool scaled) {
  return scaled ? prefill_kernel_of<PrefillConfig<64, true, 8, 3, 4, true>>()
                : prefill_kernel_of<PrefillConfig<64, false, 8, 3, 1, true>>();
}

}  // namespace octet
