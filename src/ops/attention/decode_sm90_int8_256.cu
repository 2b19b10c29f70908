#include "ops/attention/decode_sm90_pick.cuh"

namespace octet {

// Column blocks, warpgroups, stages and pages of a turn (docs/kernels/decode_sm90.md).
DecodeKernel decode_kernel_int8_256(int queries) {
  return smallest_decode_kernel<DecodeConfig<DecodeKeys::int8, 256, 1, 2, 3, 1>,
                                DecodeConfig<DecodeKeys::int8, 256, 2, 2, 3, 1>,
                                DecodeConfig<DecodeKeys::int8, 256, 4, 2, 2, 1>>(queries);
}

}  // namespace octet
