// The decode kernels that are built. Internal to src/ops/attention.
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
  int queries = 0;             // of a KV head that it takes at once
  std::size_t part_bytes = 0;  // of a pair's part: outputs, maxima and sums
};

// By what is cached and by head_dim: e4m3, int8 keys with e4m3 values, bfloat16; and e4m3 with
// single-level accumulation. queries: query rows x heads of a KV head, any number.
DecodeKernel decode_kernel_fp8_64(int queries);
DecodeKernel decode_kernel_fp8_96(int queries);
DecodeKernel decode_kernel_fp8_128(int queries);
DecodeKernel decode_kernel_fp8_192(int queries);
DecodeKernel decode_kernel_fp8_256(int queries);
DecodeKernel decode_kernel_fp8_512(int queries);
DecodeKernel decode_kernel_int8_64(int queries);
DecodeKernel decode_kernel_int8_96(int queries);
DecodeKernel decode_kernel_int8_128(int queries);
DecodeKernel decode_kernel_int8_192(int queries);
DecodeKernel decode_kernel_int8_256(int queries);
DecodeKernel decode_kernel_int8_512(int queries);
DecodeKernel decode_kernel_bfloat16_64(int queries);
DecodeKernel decode_kernel_bfloat16_96(int queries);
DecodeKernel decode_kernel_bfloat16_128(int queries);
DecodeKernel decode_kernel_bfloat16_192(int queries);
DecodeKernel decode_kernel_bfloat16_256(int queries);
DecodeKernel decode_kernel_single_64(int queries);
DecodeKernel decode_kernel_single_128(int queries);
DecodeKernel decode_kernel_single_256(int queries);

}  // namespace octet
