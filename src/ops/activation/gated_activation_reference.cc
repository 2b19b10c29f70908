#include <cmath>
#include <numbers>

#include "ops/activation/gated_activation.h"

namespace octet {

void gated_activation_reference(const GatedActivationArgs& args, double* y) {
  for (std::int64_t i = 0; i < args.rows * args.width; ++i) {
    const double a = args.gate[i];
    double activated = a / (1.0 + std::exp(-a));
    if (args.activation == Activation::gelu_tanh) {
      const double u = std::sqrt(2.0 / std::numbers::pi) * (a + 0.044715 * a * a * a);
      // 0.5 a (1 + tanh(u)) would cancel where u is far below zero.
      activated = a / (1.0 + std::exp(-2.0 * u));
    }
    y[i] = activated * args.up[i];
  }
}

}  // namespace octet
