#include "ops/cpu/scratch.h"

#include <cstdlib>
#include <limits>

#include "core/error.h"

namespace octet {

Scratch::~Scratch() { std::free(data_); }

void* Scratch::reserve(std::size_t bytes) {
  constexpr std::size_t alignment = 64;
  if (bytes <= bytes_) return data_;
  if (bytes <= std::numeric_limits<std::size_t>::max() - alignment) {
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    std::free(data_);
    bytes_ = 0;
    data_ = std::aligned_alloc(alignment, rounded);
    if (data_ != nullptr) {
      bytes_ = rounded;
      return data_;
    }
  }
  throw_error(ErrorKind::out_of_memory, "no memory for {} bytes of a kernel's working space",
              bytes);
}

}  // namespace octet
