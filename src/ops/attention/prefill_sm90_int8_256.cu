#include "ops/attention/prefill_sm90_kernel.cuh"
#include "ops/attention/prefill_sm90_pick.cuh"

namespace octet {

// Without spills (docs/kernels/prefill_sm90.md).
PrefillKernel prefill_kernel_int8_256() {
  using Config = PrefillConfig<256, true, 2, 2, PrefillKeys::int8>;
  return describe_kernel<Config>(prefill_kernel<Config>);
}

}  // namespace octet
