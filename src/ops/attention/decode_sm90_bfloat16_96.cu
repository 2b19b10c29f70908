#include "ops/attention/decode_sm90_pick.cuh"

namespace octet {

// Column blocks, warpgroups, stages and pages of a turn (docs/kernels/decode_sm90.md).
DecodeKernel decode_kernel_bfloat16_96(int queries) {
  return smallest_decode_kernel<DecodeConfig<DecodeKeys::bfloat16, 96, 1, 2, 4, 1>,
                                DecodeConfig<DecodeKeys::bfloat16, 96, 2, 2, 4, 1>>(queries);
}

}  // namespace octet
