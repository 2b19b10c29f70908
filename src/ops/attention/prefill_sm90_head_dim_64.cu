#include "ops/attention/prefill_sm90_pick.cuh"

namespace octet {

// Stages and the polynomial's share are the fastest of those measured
// (docs/kernels/prefill_sm90.md).
PrefillKernel prefill_kernel_head_dim_64(bool scaled) {
  return scaled ? prefill_kernel_of<PrefillConfig<64, true, 8, 2>>()
                : prefill_kernel_of<PrefillConfig<64, false, 8, 2>>();
}

}  // namespace octet
