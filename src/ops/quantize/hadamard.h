// The rotation that int8 keys are rounded in.
#pragma once

#include <cmath>
#include <cstddef>

namespace octet {

// The largest power of two that divides `head_dim`: the size of the rotation's blocks.
constexpr int hadamard_block(int head_dim) { return head_dim & -head_dim; }

// x <- H x for each block of hadamard_block(head_dim) elements, with H the normalised Hadamard
// matrix in natural order (Sylvester's construction). H is symmetric and its own inverse, so a
// query and a key that are both rotated have the product that they had. The butterfly runs in a
// fixed order.
inline void hadamard_rotate(float* x, int head_dim) {
  const int block = hadamard_block(head_dim);
  const float norm = 1.0f / std::sqrt(static_cast<float>(block));
  for (float* start = x; start < x + head_dim; start += block) {
    for (int stride = 1; stride < block; stride *= 2) {
      for (int low = 0; low < block; low += 2 * stride) {
        for (int i = low; i < low + stride; ++i) {
          const float a = start[i];
          const float b = start[i + stride];
          start[i] = a + b;
          start[i + stride] = a - b;
        }
      }
    }
    for (int i = 0; i < block; ++i) start[i] *= norm;
  }
}

}  // namespace octet
