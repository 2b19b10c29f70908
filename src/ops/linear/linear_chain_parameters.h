// What the host and the kernels of a chain of products share. Internal to ops/linear.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "ops/linear/linear_chain.h"

namespace octet {

inline constexpr int chain_tiles_all_given = INT_MAX;

struct ChainStepParameters {
  const std::uint8_t* weights;
  std::int64_t row_bytes;
  std::int64_t up_bytes;  // from a gate's row to its up's
  int outputs;            // rows of W, of `gated` half of them
  int columns;
  int given_tiles;      // the first of a group; chain_tiles_all_given: none are claimed
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
  unsigned* claims;              // of tiles of each step; 0 where it begins
};

struct ChainKernel {
  void (*function)(ChainParameters) = nullptr;
  int threads = 0;
  std::size_t shared_bytes = 0;  // without x
  int group_warps = 0;
  int groups = 0;  // of a block
  int stages = 0;  // of a warp's ring
};

// is_long: of bfloat16's two, that for long rows.
ChainKernel chain_kernel_bfloat16(bool is_long);
ChainKernel chain_kernel_float8();

}  // namespace octet
