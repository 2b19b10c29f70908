#include "ops/attention/prefill_sm90_pick.cuh"
#include "ops/attention/prefill_sm90_roles.cuh"

namespace octet {

// Without spills (docs/kernels/prefill_sm90.md).
PrefillKernel prefill_kernel_int8_128() {
  using Config = PrefillRolesConfig<128, true, 5, 0, true, 136, 216, 24, PrefillKeys::int8>;
  return describe_kernel<Config>(prefill_roles_kernel<Config>);
}

}  // namespace octet
