// SwiGLU (Shazeer, arXiv 2002.05202): y = silu(gate) * up with silu(a) = a / (1 + exp(-a)).
#pragma once

#include <cstdint>

#include "ops/context.h"

namespace octet {

// gate, up, y: [rows, width] float32, contiguous; y may be gate or up.
// Relative error at most 5 x 2^-24 (the exponential's 2, then a sum, a quotient and a product);
// where gate < -88.7 the result is 0, off by at most 2^-121 |up|. An element's bits do not depend
// on its position or on rows. Throws Error{internal} for negative extents and missing arrays.
struct SwigluArgs {
  const float* gate = nullptr;
  const float* up = nullptr;
  float* y = nullptr;
  std::int64_t rows = 0;
  std::int64_t width = 0;
};
void swiglu(const OpContext& context, const SwigluArgs& args);
void swiglu_reference(const SwigluArgs& args, double* y);

}  // namespace octet
