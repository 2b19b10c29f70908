// Linear layer: y = x W^T + b with W as the file stores it.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor_view.h"
#include "ops/context.h"

namespace octet {

// y[m][n] = sum_k x[m][k] * W[n][k] + bias[n]
//   x: [rows, K] float32, row stride `x_stride` (elements)
//   weight: [N, K], any DataType, used as stored and decoded tile by tile, with its scales if it
//   has
//     any: the W of the formula is the product that TensorScales (core/tensor_view.h) defines
//   bias: [N] float32 or null
//   y: [rows, N] float32, row stride `y_stride`; overwritten; no part of x
// Determinism: the sum of one output runs in an order that depends on K alone, never on rows, N,
// the threads or the caller's split: the same row gives the same bits alone or among 512. With
// Arithmetic::bfloat16 x and the decoded W are rounded to bfloat16 first; sums are float32 (where
// the instruction set has BF16 dot products, these flush what binary32 would hold as subnormal).
// With Arithmetic::int16 and weights of block types 32 elements of x become integers of 16 bits,
// off by at most 1.5e-5 of the largest of them; all instruction sets give the same bits, and a row
// with a NaN or an infinity gives NaN (ops/linear/linear_int16.h). Throws Error{internal} where
// shapes or strides do not fit.
struct LinearArgs {
  const float* x = nullptr;
  std::int64_t rows = 0;
  std::int64_t x_stride = 0;
  const TensorView* weight = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
  std::int64_t y_stride = 0;
};
void linear(const OpContext& context, const LinearArgs& args);

// Several layers of the same x, rows and x_stride (else Error{internal}): the bits of one after the
// other, in less time, since where the same kernels serve them x is packed once and threads wait
// for one another once.
void linear(const OpContext& context, std::span<const LinearArgs> layers);

// The arithmetic that quantised weights are multiplied in unless the user asks for another: int16
// where it has kernels of its own, the portable one being slower in it.
Arithmetic fastest_arithmetic(InstructionSet set);

// linear() in double precision, one output at a time: what the kernels are tested against.
void linear_reference(const LinearArgs& args, double* y);

}  // namespace octet
