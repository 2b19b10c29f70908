// What a launch of the portable decode kernel is told. Internal to src/ops/attention.
#pragma once

#include "ops/attention/attention_cuda_parameters.h"

namespace octet {

inline constexpr int attention_decode_warps = 4;
// Blocks of a launch, at most: so many parts of a pair can be weighed in shared memory.
inline constexpr int max_attention_decode_blocks = 640;

struct AttentionDecodeParameters {
  AttentionParameters common;
  const std::int32_t* context_lengths;
  DecodeTurns turns;  // its KV heads are units: a KV head and up to `queries` of its query heads
  int units_of_head;
  DecodeWork work;
  float* parts;  // two a block
  std::uint32_t* arrivals;
};

struct AttentionDecodeKernel {
  void (*function)(AttentionDecodeParameters) = nullptr;
  std::size_t shared_bytes = 0;
  std::size_t part_floats = 0;
  int queries = 0;
};

// For heads of at most so many elements, by tiles of eight queries.
AttentionDecodeKernel attention_decode_kernel_64(int query_tiles);
AttentionDecodeKernel attention_decode_kernel_128(int query_tiles);
AttentionDecodeKernel attention_decode_kernel_256(int query_tiles);
AttentionDecodeKernel attention_decode_kernel_512(int query_tiles);

}  // namespace octet
