// The decode kernels that are built, one table entry per shape. Internal to src/ops/attention.
#pragma once

#include <cstddef>

namespace octet {

struct DecodeParameters;

struct DecodeKernel {
  void (*function)(DecodeParameters) = nullptr;  // null: no such kernel
  std::size_t shared_bytes = 0;
  int threads = 0;
  int warpgroups = 0;  // of a block, each with a piece of the work
  int turn_pages = 1;
  std::size_t part_bytes = 0;  // of a pair's part: outputs, maxima and sums
};

// queries: query rows x heads of a KV head, up to 8; scaled: each token has its scales.
DecodeKernel decode_kernel_head_dim_64(int queries, bool scaled);
DecodeKernel decode_kernel_head_dim_128(int queries, bool scaled);
DecodeKernel decode_kernel_head_dim_256(int queries, bool scaled);

}  // namespace octet
