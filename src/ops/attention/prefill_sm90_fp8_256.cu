#include "ops/attention/prefill_sm90_kernel.cuh"
#include "ops/attention/prefill_sm90_pick.cuh"

namespace octet {

// The fastest of the configurations measured, without spills (docs/kernels/prefill_sm90.md).
PrefillKernel prefill_kernel_fp8_256(bool scaled) {
  using Scaled = PrefillConfig<256, true, 2, 2>;
  using Plain = PrefillConfig<256, false, 2, 2>;
  return scaled ? describe_kernel<Scaled>(prefill_kernel<Scaled>)
                : describe_kernel<Plain>(prefill_kernel<Plain>);
}

}  // namespace octet
