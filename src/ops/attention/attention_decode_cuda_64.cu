#include "ops/attention/attention_decode_cuda_merge.cuh"

namespace octet {

AttentionDecodeKernel attention_decode_kernel_64(int query_tiles) {
  if (query_tiles == 1) return make_attention_decode_kernel<AttentionDecodeConfig<64, 1>>();
  if (query_tiles == 2) return make_attention_decode_kernel<AttentionDecodeConfig<64, 2>>();
  return {};
}

}  // namespace octet
