#include "ops/activation/swiglu.h"

#include "core/error.h"
#include "ops/activation/swiglu_kernels.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/parallel.h"

namespace octet {
namespace {

// Elements below which a part is not worth handing to a thread: about 3 us.
constexpr std::int64_t min_elements = 4096;

void validate(const SwigluArgs& args) {
  if (args.rows < 0 || args.width < 0) {
    throw_error(ErrorKind::internal, "swiglu: {} rows of width {}: expected at least 0 of each",
                args.rows, args.width);
  }
  if (args.rows == 0 || args.width == 0) return;
  if (args.gate == nullptr || args.up == nullptr || args.y == nullptr) {
    throw_error(ErrorKind::internal, "swiglu: expected gate, up and y");
  }
}

SwigluRange* kernel_for(InstructionSet set) {
  if (set == InstructionSet::portable) return swiglu_range_portable;
  if constexpr (has_avx2_kernels) {
    if (set == InstructionSet::avx2) return swiglu_range_avx2;
  }
  throw_no_kernel("swiglu", set);
}

}  // namespace

void swiglu(const OpContext& context, const SwigluArgs& args) {
  validate(args);
  SwigluRange* kernel = kernel_for(context.instruction_set);
  parallel_ranges(context, args.rows * args.width, min_elements,
                  [&args, kernel](std::int64_t begin, std::int64_t end) {
                    kernel(args.gate + begin, args.up + begin, args.y + begin, end - begin);
                  });
}

}  // namespace octet
