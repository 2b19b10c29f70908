#include <cmath>

#include "ops/norm/rms_norm.h"

namespace octet {

void rms_norm_reference(const RmsNormArgs& args, double* y) {
  for (std::int64_t row = 0; row < args.rows; ++row) {
    const std::int64_t at = row * args.width;
    // The residual stream is stored as float32: the norm is of the rounded sum.
    const auto value = [&](std::int64_t i) {
      return static_cast<double>(args.residual == nullptr ? args.x[at + i]
                                                          : args.residual[at + i] + args.x[at + i]);
    };
    double sum = 0;
    for (std::int64_t i = 0; i < args.width; ++i) sum += value(i) * value(i);
    const double root = std::sqrt(sum / static_cast<double>(args.width) + args.epsilon);
    for (std::int64_t i = 0; i < args.width; ++i) y[at + i] = value(i) / root * args.weight[i];
  }
}

}  // namespace octet
