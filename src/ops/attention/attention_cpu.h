// Attention on the CPU: splits the work, and runs an instruction set's kernels over it.
#pragma once

#include "ops/attention/attention.h"

namespace octet {

void attention_cpu(const OpContext& context, const AttentionArgs& args);

}  // namespace octet
