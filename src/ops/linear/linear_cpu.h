#pragma once

#include <span>

#include "ops/linear/linear.h"
#include "ops/linear/linear_kernels.h"

namespace octet {

// Blocks and threads linear layers of the same x over the kernels of an instruction set: x is
// packed once, and the outputs of all are handed out together. `layers` are validated, and not
// none.
void linear_cpu(const OpContext& context, const LinearKernels& kernels,
                std::span<const LinearArgs> layers);

}  // namespace octet
