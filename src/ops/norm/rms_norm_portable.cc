#include <cmath>

#include "ops/norm/rms_norm_kernels.h"

namespace octet {
namespace {

constexpr std::int64_t sums = 32;  // four of eight lanes, as rms_norm_kernels.h states

float sum_of_squares(const float* values, std::int64_t width) {
  float lanes[sums] = {};
  std::int64_t i = 0;
  for (; i + sums <= width; i += sums) {
    for (std::int64_t lane = 0; lane < sums; ++lane) {
      lanes[lane] += values[i + lane] * values[i + lane];
    }
  }
  for (std::int64_t lane = 0; i < width; ++i, ++lane) lanes[lane] += values[i] * values[i];
  for (std::int64_t half = sums / 2; half > 0; half /= 2) {
    for (std::int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

}  // namespace

void rms_norm_row_portable(const float* x, float* residual, const float* weight, float* y,
                           std::int64_t width, float epsilon) {
  if (residual != nullptr) {
    for (std::int64_t i = 0; i < width; ++i) residual[i] += x[i];
    x = residual;
  }
  const float mean = sum_of_squares(x, width) / static_cast<float>(width);
  const float scale = 1.0f / std::sqrt(mean + epsilon);
  for (std::int64_t i = 0; i < width; ++i) y[i] = x[i] * scale * weight[i];
}

}  // namespace octet
