// Soft cap of logits (Gemma 2, arXiv 2408.00118): keeps values within +-cap without a kink.
#pragma once

#include <cstdint>

#include "ops/context.h"

namespace octet {

// x[i] = cap * tanh(x[i] / cap), in place; x: [count] float32. An element's bits do not depend on
// its position. Throws Error{internal} for a cap that is not positive, and for missing x.
void soft_cap(const OpContext& context, float cap, float* x, std::int64_t count);

}  // namespace octet
