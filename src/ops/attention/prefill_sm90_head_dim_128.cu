#include "ops/attention/prefill_sm90_pick.cuh"

namespace octet {

// The fastest of the configurations measured, without spills (docs/kernels/prefill_sm90.md).
PrefillKernel prefill_kernel_head_dim_128(bool scaled) {
  return scaled ? prefill_roles_kernel_of<PrefillRolesConfig<128, true, 5, 2, 4, false, true, 120, 232, 40>>()
                : prefill_roles_kernel_of<PrefillRolesConfig<128, false, 5, 2, 1, false, true, 120, 232, 40>>();
}

}  // namespace octet
