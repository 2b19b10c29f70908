#include "ops/activation/soft_cap.h"

#include <cmath>

#include "core/error.h"
#include "ops/cpu/parallel.h"

namespace octet {
namespace {

// Elements below which a part is not worth handing to a thread: about 10 us of tanh.
constexpr std::int64_t min_elements = 1024;

}  // namespace

void soft_cap(const OpContext& context, float cap, float* x, std::int64_t count) {
  if (!(cap > 0.0f) || count < 0 || (count > 0 && x == nullptr)) {
    throw_error(ErrorKind::internal, "soft_cap: {} values with a cap of {}", count, cap);
  }
  parallel_ranges(context, count, min_elements, [cap, x](std::int64_t i, std::int64_t end) {
    for (; i < end; ++i) x[i] = cap * std::tanh(x[i] / cap);
  });
}

}  // namespace octet
