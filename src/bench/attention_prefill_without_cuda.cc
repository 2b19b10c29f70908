#include "bench/attention_prefill.h"
#include "core/cuda/device.h"
#include "core/error.h"

namespace octet {

AttentionPrefillReport bench_attention_prefill(const AttentionPrefillBench&) {
  throw_unsupported("bench attention runs on an NVIDIA GPU, and {}", cuda_unavailable_reason());
}

}  // namespace octet
