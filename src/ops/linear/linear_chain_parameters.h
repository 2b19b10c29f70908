// What the host and the kernels of a chain of products share. Internal to ops/linear.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/linear/linear_chain.h"

namespace octet {

struct ChainStepParameters {
  const std::uint8_t* weights;
  std::int64_t row_bytes;
  std::int64_t up_bytes;  // from a gate's row to its up's
  int outputs;            // rows of W, of `gated` half of them
  int columns;
  const float* scales;  // of each row of W; null: none
  const float* bias;
  const float* norm;
  const __nv_bfloat16* x;
  void* y;
  ChainInput input;
  ChainOutput output;
};

struct ChainParameters {
  ChainStepParameters steps[linear_chain_most_steps];
  int count;
  int rows;
  int x_bytes;  // of a row of x in shared memory
  float* residual;
  float epsilon;
  Activation activation;
  unsigned long long* arrivals;  // of blocks, at the end of every step but a chain's last
  unsigned long long* tickets;   // one for each block that began
};

struct ChainKernel {
  void (*function)(ChainParameters) = nullptr;
  int threads = 0;
  std::size_t shared_bytes = 0;  // without x
};

ChainKernel chain_kernel_bfloat16();
ChainKernel chain_kernel_float8();

}  // namespace octet
