// RMS norm on the GPU, fused with the additions to the residual stream that come before it.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "core/cuda/launch.h"

namespace octet {

// With n(x)[i] = x[i] / sqrt(mean_i(x[i]^2) + epsilon), for each row:
//   residual += branch                        where there is a branch,
//   residual += n(branch) * branch_norm       where it has a norm of its own (Gemma's post norms),
//   y = n(residual) * weight                  rounded to bfloat16.
// residual: [rows, width] float32, in place; branch, y: [rows, width] bfloat16; weights: [width].
// All arithmetic is float32; sums run in an order that depends on `width` alone.
//
// With row_ids ([rows] on the device), row i of y is that of residual's and branch's row
// row_ids[i], the residual is not written, and a negative id leaves its row of y as it is.
//
// y null: only the residual is brought up to date. Throws Error{internal} for missing arrays and
// negative extents, Error{unsupported} for rows of more than 49152 elements.
struct RmsNormCudaArgs {
  float* residual = nullptr;
  const __nv_bfloat16* branch = nullptr;  // null: none
  const float* branch_norm = nullptr;     // null: none
  const float* weight = nullptr;
  __nv_bfloat16* y = nullptr;
  const std::int32_t* row_ids = nullptr;  // null: row i is row i
  std::int64_t rows = 0;
  std::int64_t width = 0;
  float epsilon = 0;
};
void rms_norm_cuda(const CudaLaunch& launch, const RmsNormCudaArgs& args);

}  // namespace octet
