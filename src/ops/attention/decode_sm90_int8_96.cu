#include "ops/attention/decode_sm90_pick.cuh"

namespace octet {

// Column blocks, warpgroups, stages and pages of a turn (docs/kernels/decode_sm90.md).
DecodeKernel decode_kernel_int8_96(int queries) {
  return smallest_decode_kernel<DecodeConfig<DecodeKeys::int8, 96, 2, 4, 4, 1>,
                                DecodeConfig<DecodeKeys::int8, 96, 4, 3, 4, 1>>(queries);
}

}  // namespace octet
