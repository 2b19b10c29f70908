#include "core/tensor_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace octet {

std::string format_shape(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace octet
