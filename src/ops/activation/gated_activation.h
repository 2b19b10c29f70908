// Gated feed-forward activations (Shazeer, arXiv 2002.05202): y = f(gate) * up.
#pragma once

#include <cstdint>
#include <string_view>

#include "ops/context.h"

namespace octet {

enum class Activation : std::uint8_t {
  silu,       // a / (1 + exp(-a))
  gelu_tanh,  // 0.5 a (1 + tanh(sqrt(2 / pi) (a + 0.044715 a^3))): GELU's approximation
};

std::string_view name_of(Activation activation);

// gate, up, y: [rows, width] float32, contiguous; y may be gate or up.
// Both activations are a / (1 + exp(-z)), with z = a for silu and z = a (1.5957691 + 0.0713548 a^2)
// for gelu_tanh, since (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)). Relative error at most 5 x 2^-24
// for silu (the exponential's 2, then a sum, a quotient and a product), (5 + 3 |z|) x 2^-24 for
// gelu_tanh (z is rounded three times); where z < -88.7 the result is 0, off by at most 2^-121
// |up|. An element's bits do not depend on its position or on rows. Throws Error{internal} for
// negative extents and missing arrays.
struct GatedActivationArgs {
  Activation activation = Activation::silu;
  const float* gate = nullptr;
  const float* up = nullptr;
  float* y = nullptr;
  std::int64_t rows = 0;
  std::int64_t width = 0;
};
void gated_activation(const OpContext& context, const GatedActivationArgs& args);
// In double precision.
void gated_activation_reference(const GatedActivationArgs& args, double* y);

}  // namespace octet
