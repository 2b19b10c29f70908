#include "ops/attention/attention_prefill_cuda_kernel.cuh"

namespace octet {

AttentionPrefillKernel attention_prefill_kernel_512(bool key_codes, bool value_codes) {
  return pick_attention_prefill_kernel<512, 2, 2, 2, 16>(key_codes, value_codes);
}

}  // namespace octet
