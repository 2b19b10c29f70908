// Products of one or two rows that follow one another, in one launch, with what stands between
// them: RMS norms before, additions to the residual stream and gated activations after.
//
// Between two launches the memory waits: for the last block's end, for the next one's start, for x.
// That takes some 4 us each time, of 8 to 56 that a matrix of an 8B model takes. Here a block per
// multiprocessor lives through all steps, and while it waits for the others at a step's end the
// copies of the next step's weights, which depend on nothing, fill its shared memory: 5 us' worth.
#pragma once

#include <cstdint>
#include <span>

#include <cuda_bf16.h>

#include "core/cuda/device_memory.h"
#include "core/cuda/launch.h"
#include "ops/activation/gated_activation.h"
#include "ops/linear/device_matrix.h"

namespace octet {

enum class ChainInput : std::uint8_t {
  rows,             // x as it is
  normed_residual,  // x = n(residual) * norm, rounded to bfloat16 (norm/rms_norm_cuda.h)
};

enum class ChainOutput : std::uint8_t {
  bfloat16,  // y = x W^T + bias
  float32,   // the same
  // W holds gates and then as many ups: y = f(x gates^T) * (x ups^T), bfloat16, half as wide.
  gated,
  residual,  // residual += x W^T, rounded nowhere
};

// x: [rows, weight.columns] bfloat16, y: [rows, outputs]; contiguous, aligned to 16 bytes. norm:
// [weight.columns]. bias: [weight.rows], or null: none, as for `gated` and `residual`.
struct LinearChainStep {
  const DeviceMatrix* weight = nullptr;
  ChainInput input = ChainInput::rows;
  const __nv_bfloat16* x = nullptr;
  const float* norm = nullptr;
  ChainOutput output = ChainOutput::bfloat16;
  const float* bias = nullptr;
  void* y = nullptr;
};

// Steps run one after the other, each with the results of those before it; one that reads or adds
// to the residual ([rows, width] float32) is as wide as that. All arithmetic is float32, sums run
// in an order that the number of columns alone decides.
struct LinearChainArgs {
  std::span<const LinearChainStep> steps;  // 1 to linear_chain_most_steps
  int rows = 0;                            // 1 to linear_chain_most_rows
  float* residual = nullptr;
  std::int64_t width = 0;
  float epsilon = 0;
  Activation activation = Activation::silu;
};

inline constexpr int linear_chain_most_steps = 4;
inline constexpr int linear_chain_most_rows = 2;

// Whether a chain may hold this matrix: all its rows of one type, bfloat16 or float8_e4m3 with one
// scale a row; a multiple of eight columns, which have room beside the copies. A chain's matrices
// are of one type.
bool linear_chain_takes(const DeviceMatrix& matrix);

// What the chains of one stream share. Not for two streams at once.
class LinearChainWorkspace {
 public:
  LinearChainWorkspace();

  // Whether this GPU has the shared memory: that of compute capability 9.0 and 10.0.
  bool supported() const { return blocks_ > 0; }
  int blocks() const { return blocks_; }
  // Counters that only grow: blocks that came to the end of a step, and that began.
  unsigned long long* arrivals() const { return counters_.data(); }
  unsigned long long* tickets() const { return counters_.data() + counters_.size() / 2; }

  // Of each step, how many tiles were claimed (linear_chain_parameters.h).
  unsigned* claims() const { return claims_.data(); }

 private:
  int blocks_ = 0;
  DeviceArray<unsigned long long> counters_;
  DeviceArray<unsigned> claims_;
};

// Every multiprocessor must come to hold one block: no launch that never ends may run beside it.
// Weights are read before the kernels ahead in the stream have ended (launch.overlap). Throws
// Error{internal} for what linear_chain_takes() refuses, for missing arrays and extents that do not
// fit.
void linear_chain_cuda(const CudaLaunch& launch, LinearChainWorkspace& workspace,
                       const LinearChainArgs& args);

}  // namespace octet
