#include "ops/attention/decode_sm90_pick.cuh"

namespace octet {

// Column blocks, warpgroups, stages and pages of a turn (docs/kernels/decode_sm90.md).
DecodeKernel decode_kernel_single_256(int queries) {
  return smallest_decode_kernel<DecodeConfig<DecodeKeys::e4m3, 256, 1, 2, 3, 1, true>,
                                DecodeConfig<DecodeKeys::e4m3, 256, 2, 2, 3, 1, true>>(queries);
}

}  // namespace octet
