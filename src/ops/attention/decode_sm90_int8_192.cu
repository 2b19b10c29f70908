#include "ops/attention/decode_sm90_pick.cuh"

namespace octet {

// Column blocks, warpgroups, stages and pages of a turn (docs/kernels/decode_sm90.md).
DecodeKernel decode_kernel_int8_192(int queries) {
  return smallest_decode_kernel<DecodeConfig<DecodeKeys::int8, 192, 2, 2, 4, 1>,
                                DecodeConfig<DecodeKeys::int8, 192, 4, 2, 3, 1>>(queries);
}

}  // namespace octet
