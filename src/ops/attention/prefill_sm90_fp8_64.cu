#include "ops/attention/prefill_sm90_pick.cuh"
#include "ops/attention/prefill_sm90_roles.cuh"

namespace octet {

// The fastest of the configurations measured, without spills (docs/kernels/prefill_sm90.md).
PrefillKernel prefill_kernel_fp8_64(bool scaled) {
  using Scaled = PrefillRolesConfig<64, true, 8, 2, false, 136, 184, 40>;
  using Plain = PrefillRolesConfig<64, false, 8, 2, false, 136, 184, 40>;
  return scaled ? describe_kernel<Scaled>(prefill_roles_kernel<Scaled>)
                : describe_kernel<Plain>(prefill_roles_kernel<Plain>);
}

}  // namespace octet
