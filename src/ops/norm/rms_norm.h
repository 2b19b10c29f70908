// RMS norm (Zhang and Sennrich, arXiv 1910.07467).
#pragma once

#include <cstdint>

#include "ops/context.h"

namespace octet {

// y[m][i] = x[m][i] / sqrt(mean_i(x[m][i]^2) + epsilon) * weight[i]
//   x, y: [rows, width] float32, contiguous; y may be x.  weight: [width] float32.
// With `residual`: first residual[m][i] += x[m][i], and the norm is of the sum (x is not written).
// A row's sum runs in an order that depends on `width` alone. Throws Error{internal} for negative
// extents and missing arrays.
struct RmsNormArgs {
  const float* x = nullptr;
  float* residual = nullptr;
  const float* weight = nullptr;
  float* y = nullptr;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  float epsilon = 0;
};
void rms_norm(const OpContext& context, const RmsNormArgs& args);
// In double precision. Adds nothing to the residual: it gives y for the args before rms_norm() ran.
void rms_norm_reference(const RmsNormArgs& args, double* y);

}  // namespace octet
