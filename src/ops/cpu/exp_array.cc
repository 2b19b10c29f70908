#include "ops/cpu/exp_array.h"

#include "ops/cpu/dispatch.h"
#include "ops/cpu/portable_exp.h"

namespace octet {

void exp_array(InstructionSet set, const float* x, float* y, std::int64_t count) {
  if (set == InstructionSet::portable) {
    for (std::int64_t i = 0; i < count; ++i) y[i] = portable_exp(x[i]);
    return;
  }
  if constexpr (has_avx2_kernels) {
    if (set >= InstructionSet::avx2) return exp_array_avx2(x, y, count);
  }
  throw_no_kernel("exp_array", set);
}

}  // namespace octet
