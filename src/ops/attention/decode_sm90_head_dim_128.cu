#include "ops/attention/decode_sm90_pick.cuh"

namespace octet {

// Stages, pages of a turn and blocks per multiprocessor are the fastest of those measured
// (docs/kernels/decode_sm90.md).
DecodeKernel decode_kernel_head_dim_128(int queries, bool scaled) {
  return pick_decode_kernel<128, 3, 1, 4>(queries, scaled);
}

}  // namespace octet
