#include "ops/attention/prefill_sm90_pick.cuh"

namespace octet {

// The fastest of the configurations measured, without spills (docs/kernels/prefill_sm90.md).
PrefillKernel prefill_kernel_head_dim_64(bool scaled) {
  return scaled ? prefill_roles_kernel_of<PrefillRolesConfig<64, true, 8, 3, 4, false, true, 136, 184, 40>>()
                : prefill_roles_kernel_of<PrefillRolesConfig<64, false, 8, 3, 1, false, true, 136, 184, 40>>();
}

}  // namespace octet
