// Gated activations and the soft cap of logits on the GPU.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "core/cuda/launch.h"
#include "ops/activation/gated_activation.h"

namespace octet {

// y[r][i] = f(gate_up[r][i]) * gate_up[r][width + i], as gated_activation.h defines f; float32
// arithmetic, rounded once to bfloat16.
//   gate_up: [rows, 2 width], y: [rows, width], contiguous bfloat16, aligned to 16 bytes
// Throws Error{internal} for missing arrays and negative extents.
struct GatedActivationCudaArgs {
  Activation activation = Activation::silu;
  const __nv_bfloat16* gate_up = nullptr;
  __nv_bfloat16* y = nullptr;
  std::int64_t rows = 0;
  std::int64_t width = 0;
};
void gated_activation_cuda(const CudaLaunch& launch, const GatedActivationCudaArgs& args);

// x[i] = cap * tanh(x[i] / cap) in place; x: [count] float32. Throws Error{internal} for a cap that
// is not positive, and for missing x.
void soft_cap_cuda(const CudaLaunch& launch, float cap, float* x, std::int64_t count);

}  // namespace octet
