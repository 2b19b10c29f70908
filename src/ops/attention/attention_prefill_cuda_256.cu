#include "ops/attention/attention_prefill_cuda_kernel.cuh"

namespace octet {

AttentionPrefillKernel attention_prefill_kernel_256(bool key_codes, bool value_codes) {
  return pick_attention_prefill_kernel<256, 4, 4, 1, 32>(key_codes, value_codes);
}

}  // namespace octet
