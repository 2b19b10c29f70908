#include "ops/attention/prefill_sm90_pick.cuh"
#include "ops/attention/prefill_sm90_roles.cuh"

namespace octet {

// The fastest of the configurations measured, without spills (docs/kernels/prefill_sm90.md).
PrefillKernel prefill_kernel_fp8_128(bool scaled) {
  using Scaled = PrefillRolesConfig<128, true, 5, 2, true, 128, 224, 32>;
  using Plain = PrefillRolesConfig<128, false, 5, 2, true, 128, 224, 32>;
  return scaled ? describe_kernel<Scaled>(prefill_roles_kernel<Scaled>)
                : describe_kernel<Plain>(prefill_roles_kernel<Plain>);
}

}  // namespace octet
