#pragma once

#include <cstdint>

#include "ops/activation/gated_activation.h"

namespace octet {

// y[i] = f(gate[i]) * up[i]; y may be gate or up. An element's bits do not depend on its position.
using GatedActivationRange = void(const float* gate, const float* up, float* y, std::int64_t count);

GatedActivationRange* gated_activation_portable(Activation activation);
// x86-64 builds alone (ops/cpu/dispatch.h).
GatedActivationRange* gated_activation_avx2(Activation activation);

// gelu_tanh's exponent is a (linear + cubic a^2): 2 sqrt(2 / pi), and that times 0.044715.
inline constexpr float gelu_linear = 1.5957691216057308f;
inline constexpr float gelu_cubic = 0.07135481627260025f;

}  // namespace octet
