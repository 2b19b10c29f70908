#include "ops/activation/gated_activation_kernels.h"
#include "ops/cpu/portable_exp.h"

namespace octet {
namespace {

void silu_range(const float* gate, const float* up, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = gate[i] / (1.0f + portable_exp(-gate[i])) * up[i];
  }
}

void gelu_tanh_range(const float* gate, const float* up, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float exponent = gate[i] * (gelu_linear + gelu_cubic * (gate[i] * gate[i]));
    y[i] = gate[i] / (1.0f + portable_exp(-exponent)) * up[i];
  }
}

}  // namespace

GatedActivationRange* gated_activation_portable(Activation activation) {
  return activation == Activation::silu ? silu_range : gelu_tanh_range;
}

}  // namespace octet
