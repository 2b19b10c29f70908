#include <cstdint>
#include <vector>

#include "files/block_decode.h"
#include "ops/linear/linear.h"

namespace octet {

void linear_reference(const LinearArgs& args, double* y) {
  const std::int64_t outputs = args.weight->shape[0];
  const std::int64_t k = args.weight->shape[1];
  std::vector<float> weights(static_cast<std::size_t>(k));
  for (std::int64_t output = 0; output < outputs; ++output) {
    decode_row(*args.weight, output, weights);
    for (std::int64_t row = 0; row < args.rows; ++row) {
      const float* x = args.x + row * args.x_stride;
      double sum = 0;
      for (std::int64_t i = 0; i < k; ++i) {
        sum += static_cast<double>(x[i]) * weights[static_cast<std::size_t>(i)];
      }
      if (args.bias != nullptr) sum += args.bias[output];
      y[row * outputs + output] = sum;
    }
  }
}

}  // namespace octet
