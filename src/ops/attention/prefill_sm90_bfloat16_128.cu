#include "ops/attention/prefill_sm90_bfloat16.cuh"
#include "ops/attention/prefill_sm90_pick.cuh"

namespace octet {

PrefillKernel prefill_kernel_bfloat16_128() {
  using Config = PrefillBfloat16Config<128, 2, 2>;
  return describe_kernel<Config>(prefill_bfloat16_kernel<Config>);
}

}  // namespace octet
