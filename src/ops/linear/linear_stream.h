// What the host and the kernels that stream weights past a few rows of x share. Internal to
// ops/linear.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_bf16.h>

#include "core/data_type.h"

namespace octet {

// Of one part of a matrix (DeviceMatrixPart).
struct LinearStreamParameters {
  const __nv_bfloat16* x = nullptr;
  std::int64_t x_stride = 0;
  int rows = 0;            // of x
  bool x_aligned = false;  // 16-byte loads of whole eights of elements are right
  const std::uint8_t* weights = nullptr;
  std::int64_t row_bytes = 0;
  int outputs = 0;
  int k = 0;
  // Scales of float8_e4m3: [.., grid_columns]; null: none. block_shift: log2 of block_columns where
  // that is a power of two, else -1.
  const float* scales = nullptr;
  int grid_columns = 1;
  int block_rows = 1;
  int block_columns = 1;
  int block_shift = -1;
  const float* bias = nullptr;
  void* y = nullptr;  // at the part's first output
  std::int64_t y_stride = 0;
  bool y_float32 = false;
};

inline constexpr int linear_stream_warps = 4;
inline constexpr int linear_stream_most_rows = 16;

struct LinearStreamKernel {
  void (*function)(LinearStreamParameters) = nullptr;
  std::size_t shared_bytes = 0;
  int blocks = 0;   // of a multiprocessor
  int outputs = 0;  // of a tile
};

// For 1 to 16 rows of x. block_scales: the scales differ along k.
LinearStreamKernel linear_stream_kernel(DataType dtype, bool block_scales, int rows);

// Of some of the types each, so that they are compiled side by side; `function` is null for others.
LinearStreamKernel linear_stream_kernel_plain(DataType dtype, bool block_scales, int rows);
LinearStreamKernel linear_stream_kernel_blocks_32(DataType dtype, int rows);
LinearStreamKernel linear_stream_kernel_blocks_256(DataType dtype, int rows);

}  // namespace octet
