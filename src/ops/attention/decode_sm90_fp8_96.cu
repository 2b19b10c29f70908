#include "ops/attention/decode_sm90_pick.cuh"

namespace octet {

// Column blocks, warpgroups, stages and pages of a turn (docs/kernels/decode_sm90.md).
DecodeKernel decode_kernel_fp8_96(int queries) {
  return smallest_decode_kernel<DecodeConfig<DecodeKeys::e4m3, 96, 2, 4, 4, 1>,
                                DecodeConfig<DecodeKeys::e4m3, 96, 4, 3, 4, 1>>(queries);
}

}  // namespace octet
