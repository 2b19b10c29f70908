#pragma once

#include <cstdint>

namespace octet {

// One row as RmsNormArgs describes it; `residual` may be null, `y` may be `x`, width is at least 1.
// The square of element i goes to lane i mod 8 of sum (i / 8) mod 4, in ascending i.
using RmsNormRow = void(const float* x, float* residual, const float* weight, float* y,
                        std::int64_t width, float epsilon);

RmsNormRow rms_norm_row_portable;
RmsNormRow rms_norm_row_avx2;  // x86-64 builds alone (ops/cpu/dispatch.h)

}  // namespace octet
