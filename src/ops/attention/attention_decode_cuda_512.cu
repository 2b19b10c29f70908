#include "ops/attention/attention_decode_cuda_merge.cuh"

namespace octet {

AttentionDecodeKernel attention_decode_kernel_512(int query_tiles) {
  // Sixteen queries' outputs would take more registers than there are.
  if (query_tiles == 1) return make_attention_decode_kernel<AttentionDecodeConfig<512, 1>>();
  return {};
}

}  // namespace octet
