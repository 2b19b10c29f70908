#include "ops/attention/prefill_sm90_pick.cuh"

namespace octet {

// Stages and the polynomial's share are the fastest of those measured
// (docs/kernels/prefill_sm90.md).
PrefillKernel prefill_kernel_head_dim_256(bool scaled) {
  return scaled ? prefill_kernel_of<PrefillConfig<256, true, 2, 0>>()
                : prefill_kernel_of<PrefillConfig<256, false, 2, 0>>();
}

}  // namespace octet
