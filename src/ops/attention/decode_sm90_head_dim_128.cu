#include "ops/attention/decode_sm90_pick.cuh"

namespace octet {

// Warpgroups, stages and pages of a turn are the fastest of those measured
// (docs/kernels/decode_sm90.md).
DecodeKernel decode_kernel_head_dim_128(int queries, bool scaled) {
  if (queries <= 4) return pick_decode_kernel<128, 1, 4, 3, 1>(scaled);
  if (queries <= 8) return pick_decode_kernel<128, 2, 4, 3, 1>(scaled);
  return {};
}

}  // namespace octet
