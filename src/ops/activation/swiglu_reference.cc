#include <cmath>

#include "ops/activation/swiglu.h"

namespace octet {

void swiglu_reference(const SwigluArgs& args, double* y) {
  for (std::int64_t i = 0; i < args.rows * args.width; ++i) {
    const double gate = args.gate[i];
    y[i] = gate / (1.0 + std::exp(-gate)) * args.up[i];
  }
}

}  // namespace octet
