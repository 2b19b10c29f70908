#include "ops/attention/decode_sm90_pick.cuh"

namespace octet {

// Warpgroups, stages and pages of a turn are the fastest of those measured
// (docs/kernels/decode_sm90.md).
DecodeKernel decode_kernel_head_dim_256(int queries, bool scaled) {
  if (queries <= 4) return pick_decode_kernel<256, 1, 3, 2, 1>(scaled);
  if (queries <= 8) return pick_decode_kernel<256, 2, 2, 3, 1>(scaled);
  return {};
}

}  // namespace octet
