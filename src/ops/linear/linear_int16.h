// Arithmetic::int16, what all its kernels share. Internal to ops/linear.
//
// Of each row of x, 32 elements become 16-bit integers q with a scale d = absmax / 32767: x is off
// by at most d / 2, 1.5e-5 of the block's largest. Weights are the integers that the file stores
// (files/block_quants.h), so that the sum of a block, I = sum q_w q_x, is exact in 32 bits (127 *
// 32767 * 32 < 2^31) in any order, and the only order that counts is that of the folds:
//   for each 32 (or 16, where a scale serves so many) elements, ascending in k:
//     y = fma(float(I), scale_w * d, y)
//     y = fma(minimum_w, float(sum q_x) * d, y)   where the type has minima
// and last the bias. Every kernel set folds so: all give the same bits.
//
// Arithmetic::int8 is the same with d = absmax / 127 for weights of types whose integers have no
// sign and at most five bits, which vpmaddubsw multiplies 32 at a time; other types are as in
// int16.
//
// A block of x with a NaN or an infinity has d = NaN, which makes the whole row of y NaN. Scales
// are at least 2^-120: elements far below that become 0.
#pragma once

#include "core/data_type.h"

namespace octet {

inline constexpr int int16_block = 32;
inline constexpr int int16_half_block = 16;
inline constexpr float int16_steps = 32767.0f;
inline constexpr float int8_steps = 127.0f;
inline constexpr float least_int16_scale = 0x1p-120f;

// Whether Arithmetic::int8 rounds x to 8 bits for weights of this type.
constexpr bool takes_int8(DataType dtype) {
  switch (dtype) {
    case DataType::q4_0:
    case DataType::q4_1:
    case DataType::q5_0:
    case DataType::q5_1:
    case DataType::q4_k:
    case DataType::q5_k:
      return true;
    default:
      return false;
  }
}

}  // namespace octet
