#include "ops/rope/rope_kernels.h"

namespace octet {
namespace {

void rotate(const float* a, const float* b, const float* cosines, const float* sines, int pairs,
            float* out_low, float* out_high) {
  for (int i = 0; i < pairs; ++i) {
    const float first = a[i];
    const float second = b[i];
    out_low[i] = first * cosines[i] - second * sines[i];
    out_high[i] = second * cosines[i] + first * sines[i];
  }
}

void split(const float* x, int pairs, float* a, float* b) {
  for (int i = 0; i < pairs; ++i) {
    a[i] = x[2 * i];
    b[i] = x[2 * i + 1];
  }
}

constexpr RopeKernels kernels = {.rotate = rotate, .split = split};

}  // namespace

const RopeKernels& rope_kernels_portable() { return kernels; }

}  // namespace octet
