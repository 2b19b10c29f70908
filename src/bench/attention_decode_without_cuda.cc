#include "bench/attention_decode.h"
#include "core/cuda/device.h"
#include "core/error.h"

namespace octet {

AttentionDecodeReport bench_attention_decode(const AttentionDecodeBench&) {
  throw_unsupported("bench attention runs on an NVIDIA GPU, and {}", cuda_unavailable_reason());
}

}  // namespace octet
