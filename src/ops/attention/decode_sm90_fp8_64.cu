#include "ops/attention/decode_sm90_pick.cuh"

namespace octet {

// Column blocks, warpgroups, stages and pages of a turn (docs/kernels/decode_sm90.md).
DecodeKernel decode_kernel_fp8_64(int queries) {
  return smallest_decode_kernel<DecodeConfig<DecodeKeys::e4m3, 64, 1, 4, 3, 2>,
                                DecodeConfig<DecodeKeys::e4m3, 64, 2, 4, 3, 2>,
                                DecodeConfig<DecodeKeys::e4m3, 64, 4, 4, 5, 1>>(queries);
}

}  // namespace octet
