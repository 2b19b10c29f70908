// Internal: for attention's *_avx2.cc files alone.
#pragma once

#include "ops/attention/attention_kernels.h"

namespace octet {

// AttentionKernels::multiply_stored.
void multiply_stored_avx2(KvDtype dtype, const float* a, int a_stride, const std::byte* b,
                          const std::byte* next_b, float* c, const float* scale, int rows,
                          int depth, int columns);

}  // namespace octet
