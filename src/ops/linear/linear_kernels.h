// What an instruction set brings to the linear layer: packing, decoding and multiplying. Blocking,
// threads and scratch memory are the driver's (linear_cpu.cc) and are the same for all.
//
// Order of a sum: K is padded with zeros to a multiple of `k_step`; eight float32 lanes each sum
// the products of k = lane (mod 8) in ascending k; then the lanes are added as
//   ((l0 + l2) + (l1 + l3)) + ((l4 + l6) + (l5 + l7)),
// and last the bias. A kernel set may choose another order (those of AVX-512 do, see their files)
// but must keep to it in `multiply` and `multiply_direct` alike.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/data_type.h"
#include "core/tensor_view.h"
#include "ops/context.h"

namespace octet {

// Some consecutive rows of a weight, one per output.
struct WeightRows {
  DataType dtype = DataType::float32;
  const std::byte* data = nullptr;
  std::int64_t row_bytes = 0;
  std::int64_t outputs = 0;
  std::int64_t k = 0;
  // Of the whole weight, of which these rows start at `first_row`; null: none.
  const TensorScales* scales = nullptr;
  std::int64_t first_row = 0;
};

// Where the results of a tile go: element (row, output) at y[row * y_stride + output]. `bias` (or
// null) is that of the tile's first output.
struct OutputTile {
  float* y = nullptr;
  std::int64_t y_stride = 0;
  const float* bias = nullptr;
};

struct LinearKernels {
  int tile_rows;             // most rows that one packed tile of x holds
  int panel_outputs;         // outputs of one decoded panel
  int most_outputs;          // that multiply may be given at once
  int direct_rows;           // up to so many rows, weights are decoded in registers
  bool direct_bfloat16;      // in Arithmetic::bfloat16 too
  int k_step;                // K is padded to a multiple of this
  std::size_t packed_bytes;  // of k_step elements of a row in a packed tile
  std::size_t panel_bytes;   // of k_step elements of an output in a panel

  // Packs rows of x (1 to tile_rows), rounded if `arithmetic` says so; padding is zero.
  void (*pack_rows)(const float* x, std::int64_t x_stride, int rows, std::int64_t k,
                    Arithmetic arithmetic, void* packed);
  // Decodes weights.outputs rows (1 to panel_outputs); missing outputs of the panel become zeros.
  void (*decode_panel)(const WeightRows& weights, Arithmetic arithmetic, void* panel);
  // One tile of rows times ceil(outputs / panel_outputs) consecutive panels.
  void (*multiply)(const void* packed, int rows, const void* panels, std::int64_t outputs,
                   std::int64_t padded_k, const OutputTile& tile);
  // The same sums for 1 to direct_rows rows straight from the stored weights. Not for
  // Arithmetic::bfloat16 unless direct_bfloat16: where there is no instruction for it, rounding
  // each weight anew costs more than decoding it into a panel.
  void (*multiply_direct)(const void* packed, int rows, const WeightRows& weights,
                          const OutputTile& tile);
  // Where multiply_direct takes x packed in another way than multiply: else null and 0.
  void (*pack_direct)(const float* x, std::int64_t x_stride, int rows, std::int64_t k,
                      Arithmetic arithmetic, void* packed) = nullptr;
  std::size_t packed_direct_bytes = 0;
};

const LinearKernels& linear_kernels_portable();
// x86-64 builds alone (ops/cpu/dispatch.h):
const LinearKernels& linear_kernels_avx2();
const LinearKernels& linear_kernels_avx512();
const LinearKernels& linear_kernels_avx512_bf16();  // Arithmetic::bfloat16 alone

// Arithmetic::int16, for weights of the block types (linear_int16.h); the same bits in all.
const LinearKernels& linear_int16_kernels_portable(DataType dtype);
const LinearKernels& linear_int16_kernels_avx2(DataType dtype);
const LinearKernels& linear_int16_kernels_avx512(DataType dtype);
const LinearKernels& linear_int16_kernels_avx512_bf16(DataType dtype);
// Arithmetic::int8, for those that takes_int8() names; the same bits in all.
const LinearKernels& linear_int8_kernels_portable(DataType dtype);
const LinearKernels& linear_int8_kernels_avx2(DataType dtype);
const LinearKernels& linear_int8_kernels_avx512_bf16(DataType dtype);

}  // namespace octet
