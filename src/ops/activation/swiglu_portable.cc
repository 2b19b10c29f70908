#include "ops/activation/swiglu_kernels.h"
#include "ops/cpu/portable_exp.h"

namespace octet {

void swiglu_range_portable(const float* gate, const float* up, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = gate[i] / (1.0f + portable_exp(-gate[i])) * up[i];
  }
}

}  // namespace octet
