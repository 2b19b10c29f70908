#include "ops/attention/decode_sm90_pick.cuh"

namespace octet {

// Column blocks, warpgroups, stages and pages of a turn (docs/kernels/decode_sm90.md).
DecodeKernel decode_kernel_fp8_128(int queries) {
  return smallest_decode_kernel<DecodeConfig<DecodeKeys::e4m3, 128, 1, 4, 3, 1>,
                                DecodeConfig<DecodeKeys::e4m3, 128, 2, 4, 3, 1>,
                                DecodeConfig<DecodeKeys::e4m3, 128, 4, 3, 3, 1>>(queries);
}

}  // namespace octet
