// Internal: what attention's AVX-512 kernel sets share.
#pragma once

#include "ops/attention/attention_kernels.h"

namespace octet {

// AttentionKernels' entries of those names, in vectors of sixteen.
void attention_multiply_avx512(const float* a, int a_stride, const float* b, int b_stride, float* c,
                               int c_stride, const float* scale, int rows, int depth, int columns);
float attention_softmax_tile_avx512(const SoftmaxTile& tile);

}  // namespace octet
