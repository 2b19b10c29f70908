// Linear layer on the GPU: y = x W^T + b with W packed as its file has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <cuda_bf16.h>

#include "ops/linear/device_matrix.h"

namespace octet {

struct CudaLaunch;  // core/cuda/launch.h

enum class LinearOutput : std::uint8_t { bfloat16, float32 };

// y[m][n] = sum_k x[m][k] * W[n][k] + bias[n], accumulated in float32
//   x: [rows, K] bfloat16, row stride `x_stride` (elements); fastest where x is aligned to 16 bytes
//     and the stride a multiple of 8
//   weight: [N, K]
//   bias: [N] float32 on the device, or null
//   y: [rows, N] of `y_type`, row stride `y_stride`; no part of x
// All pointers are the device's. Throws Error{internal} where shapes or strides do not fit.
struct LinearCudaArgs {
  const __nv_bfloat16* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t rows = 0;
  const DeviceMatrix* weight = nullptr;
  const float* bias = nullptr;
  void* y = nullptr;
  LinearOutput y_type = LinearOutput::bfloat16;
  std::int64_t y_stride = 0;
};

// What the products of one stream share: scratch memory, partial sums, cuBLASLt's handle and the
// algorithms it was measured to be fastest with. Not for two streams at once. Memory is taken by
// the constructor alone.
class LinearCudaWorkspace {
 public:
  // scratch_bytes: room for the weights of a prefill that are not bfloat16, decoded (or as many of
  // a matrix's rows at a time as fit). Throws Error{device} where cuBLASLt cannot be opened, naming
  // the file that is missing.
  explicit LinearCudaWorkspace(std::size_t scratch_bytes = std::size_t{256} << 20);
  ~LinearCudaWorkspace();
  LinearCudaWorkspace(const LinearCudaWorkspace&) = delete;
  LinearCudaWorkspace& operator=(const LinearCudaWorkspace&) = delete;

  std::size_t bytes() const;

  struct Contents;
  Contents& contents() { return *contents_; }

 private:
  std::unique_ptr<Contents> contents_;
};

// Up to this many rows the weights are streamed by octet's own kernels. Above, the product is
// cuBLASLt's, over weights decoded to bfloat16 where they are not. Both may be captured into a
// graph. Weights that cuBLASLt takes as they are go to it earlier: from 9 rows on it is the faster.
inline constexpr std::int64_t linear_cuda_streamed_rows = 32;
inline constexpr std::int64_t linear_cuda_streamed_rows_bfloat16 = 8;

// Up to so many rows the sum of one output runs in an order that depends on K alone, not on the
// GPU's size or the other rows, and weights are multiplied as the exact values of their codes;
// above, weights that are not bfloat16 are rounded to it. The kernels read weights before the
// kernels ahead of them in the stream have ended (launch.overlap): nothing in the stream may still
// be writing those.
void linear_cuda(const CudaLaunch& launch, LinearCudaWorkspace& workspace,
                 const LinearCudaArgs& args);

// Decodes rows of a matrix: out[i][:] = scale * matrix[row_ids[i]][:], float32 [rows, K]. The same
// bits as decode_row() of the stored tensor times `scale`. A row number that is not in the matrix
// (-1 pads) gives zeros. Pointers are the device's.
void decode_rows_cuda(const CudaLaunch& launch, const DeviceMatrix& matrix,
                      const std::int32_t* row_ids, std::int64_t rows, float scale, float* out);

}  // namespace octet
