#include "ops/norm/rms_norm.h"

#include "core/error.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/parallel.h"
#include "ops/norm/rms_norm_kernels.h"

namespace octet {
namespace {

// Elements below which a part is not worth handing to a thread: about 2 us.
constexpr std::int64_t min_elements = 8192;

void validate(const RmsNormArgs& args) {
  if (args.rows < 0 || args.width < 0) {
    throw_error(ErrorKind::internal, "rms_norm: {} rows of width {}: expected at least 0 of each",
                args.rows, args.width);
  }
  if (args.rows == 0 || args.width == 0) return;
  if (args.x == nullptr || args.weight == nullptr || args.y == nullptr) {
    throw_error(ErrorKind::internal, "rms_norm: expected x, weight and y");
  }
}

RmsNormRow* kernel_for(InstructionSet set) {
  if (set == InstructionSet::portable) return rms_norm_row_portable;
  if constexpr (has_avx2_kernels) {
    if (set >= InstructionSet::avx2) return rms_norm_row_avx2;
  }
  throw_no_kernel("rms_norm", set);
}

}  // namespace

void rms_norm(const OpContext& context, const RmsNormArgs& args) {
  validate(args);
  RmsNormRow* kernel = kernel_for(context.instruction_set);
  if (args.width == 0) return;
  parallel_ranges(context, args.rows, min_elements / args.width + 1,
                  [&args, kernel](std::int64_t row, std::int64_t end) {
                    for (; row < end; ++row) {
                      const std::int64_t at = row * args.width;
                      kernel(args.x + at, args.residual == nullptr ? nullptr : args.residual + at,
                             args.weight, args.y + at, args.width, args.epsilon);
                    }
                  });
}

}  // namespace octet
