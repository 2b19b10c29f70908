#pragma once

namespace octet {

// out_low[i] = a[i] cosines[i] - b[i] sines[i], out_high[i] = b[i] cosines[i] + a[i] sines[i] for i
// in [0, pairs). The outputs may be a and b themselves, and otherwise overlap neither.
using RotatePairs = void(const float* a, const float* b, const float* cosines, const float* sines,
                         int pairs, float* out_low, float* out_high);
// a[i] = x[2 i], b[i] = x[2 i + 1].
using SplitPairs = void(const float* x, int pairs, float* a, float* b);

struct RopeKernels {
  RotatePairs* rotate;
  SplitPairs* split;
};

const RopeKernels& rope_kernels_portable();
const RopeKernels& rope_kernels_avx2();  // x86-64 builds alone (ops/cpu/dispatch.h)

}  // namespace octet
