#include "ops/attention/attention_prefill_cuda_kernel.cuh"

namespace octet {

AttentionPrefillKernel attention_prefill_kernel_128(bool key_codes, bool value_codes) {
  return pick_attention_prefill_kernel<128, 4, 8, 1, 64>(key_codes, value_codes);
}

}  // namespace octet
