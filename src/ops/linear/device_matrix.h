// A matrix of weights on the GPU, as the kernels there read it.
//
// Weights stay as packed as their file has them, but are put in an order that a kernel can stream
// (ops/linear/device_packing.h). One matrix may be several
// tensors, stacked by rows, whose types may differ: the query, key and value projections of a layer
// are one product, though Q4_K_M mixes Q4_K and Q6_K in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/data_type.h"

namespace octet {

// How scales of float8_e4m3 codes lie: element (row, column) is worth
//   code * values[row / block_rows * grid_columns + column / block_columns],
// as TensorScales says; here with one row for each row of the matrix where a scale stands for a
// whole row (block_columns is then the number of columns).
struct DeviceScales {
  const float* values = nullptr;  // on the device; null: every code stands for itself
  std::int64_t grid_columns = 1;
  std::int64_t block_rows = 1;
  std::int64_t block_columns = 1;
};

// Consecutive rows of one type.
struct DeviceMatrixPart {
  DataType dtype = DataType::bfloat16;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  const std::byte* data = nullptr;  // on the device, aligned to 256
  std::int64_t row_bytes = 0;       // of a row; rows may be interleaved by eights
  DeviceScales scales;              // of float8_e4m3 alone
};

struct DeviceMatrix {
  std::string name;
  std::int64_t rows = 0;     // outputs of the product, N
  std::int64_t columns = 0;  // inputs, K
  std::vector<DeviceMatrixPart> parts;

  // What a product reads once: packed weights, padding and scales.
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const DeviceMatrixPart& part : parts) {
      sum += static_cast<std::size_t>(part.rows * part.row_bytes);
      if (part.scales.values == nullptr) continue;
      const std::int64_t grid_rows =
          (part.rows + part.scales.block_rows - 1) / part.scales.block_rows;
      sum += static_cast<std::size_t>(grid_rows * part.scales.grid_columns) * sizeof(float);
    }
    return sum;
  }
};

}  // namespace octet
