#include "ops/attention/prefill_sm90_pick.cuh"
#include "ops/attention/prefill_sm90_roles.cuh"

namespace octet {

// Without spills (docs/kernels/prefill_sm90.md).
PrefillKernel prefill_kernel_int8_64() {
  using Config = PrefillRolesConfig<64, true, 8, 2, false, 152, 168, 40, PrefillKeys::int8>;
  return describe_kernel<Config>(prefill_roles_kernel<Config>);
}

}  // namespace octet
