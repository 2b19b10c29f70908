#pragma once

#include "ops/linear/linear.h"
#include "ops/linear/linear_kernels.h"

namespace octet {

// Blocks and threads one linear layer over the kernels of an instruction set. `args` are validated.
void linear_cpu(const OpContext& context, const LinearKernels& kernels, const LinearArgs& args);

}  // namespace octet
