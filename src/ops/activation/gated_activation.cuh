// The activations of gated_activation.h in float32. For *.cu files.
#pragma once

#include <cuda_runtime.h>

#include "ops/activation/gated_activation.h"
#include "ops/activation/gated_activation_kernels.h"

namespace octet {

__device__ __forceinline__ float activate(Activation activation, float a) {
  const float z = activation == Activation::silu ? a : a * fmaf(gelu_cubic, a * a, gelu_linear);
  return a / (1.0f + __expf(-z));
}

}  // namespace octet
