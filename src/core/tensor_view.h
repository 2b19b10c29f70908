// A read-only view of a stored tensor: who it is, its element type, its shape and its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/data_type.h"

namespace octet {

// `shape` is row-major, outermost dimension first ([out, in] for a linear layer's weight), whatever
// order the file uses. Blocks of a quantised type run along the last dimension. The bytes belong to
// the file that the view came from and are not aligned to more than the file's own alignment.
struct TensorView {
  std::string name;
  DataType dtype = DataType::float32;
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;

  std::int64_t elements() const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return count;
  }
};

// "[576, 1536]", for error messages.
std::string format_shape(const std::vector<std::int64_t>& shape);

}  // namespace octet
