// A read-only view of a stored tensor: who it is, its element type, its shape and its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/data_type.h"

namespace octet {

// What the codes of a packed matrix are multiplied with. Element (row, column) is worth
//   float32(code) * values[row / block_rows * grid_columns + column / block_columns],
// a product in float32 that is rounded once, to nearest even. (With scales of bfloat16 it is exact:
// 4 and 8 significant bits.) One scale for the whole matrix is a block as large as it, one for each
// row a block of one row.
struct TensorScales {
  std::vector<float> values;  // finite, not negative, and so small that no product overflows
  std::int64_t grid_columns = 1;
  std::int64_t block_rows = 1;
  std::int64_t block_columns = 1;

  // The scales of a row, one for each block of its columns.
  const float* of_row(std::int64_t row) const {
    return values.data() + row / block_rows * grid_columns;
  }
};

// `shape` is row-major, outermost dimension first ([out, in] for a linear layer's weight), whatever
// order the file uses. Blocks of a quantised type run along the last dimension. The bytes belong to
// the file that the view came from and are not aligned to more than the file's own alignment.
struct TensorView {
  std::string name;
  DataType dtype = DataType::float32;
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  // Of a matrix of type float8_e4m3 alone; null: its codes stand for themselves.
  std::shared_ptr<const TensorScales> scales = nullptr;

  std::int64_t elements() const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return count;
  }
};

// "[576, 1536]", for error messages.
std::string format_shape(const std::vector<std::int64_t>& shape);

}  // namespace octet
