#include "ops/activation/gated_activation.h"

#include "core/error.h"
#include "ops/activation/gated_activation_kernels.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/parallel.h"

namespace octet {
namespace {

// Elements below which a part is not worth handing to a thread: about 3 us.
constexpr std::int64_t min_elements = 4096;

void validate(const GatedActivationArgs& args) {
  if (args.rows < 0 || args.width < 0) {
    throw_error(ErrorKind::internal,
                "gated_activation: {} rows of width {}: expected at least 0 of each", args.rows,
                args.width);
  }
  if (args.rows == 0 || args.width == 0) return;
  if (args.gate == nullptr || args.up == nullptr || args.y == nullptr) {
    throw_error(ErrorKind::internal, "gated_activation: expected gate, up and y");
  }
}

GatedActivationRange* kernel_for(InstructionSet set, Activation activation) {
  if (set == InstructionSet::portable) return gated_activation_portable(activation);
  if constexpr (has_avx2_kernels) {
    if (set >= InstructionSet::avx2) return gated_activation_avx2(activation);
  }
  throw_no_kernel("gated_activation", set);
}

}  // namespace

std::string_view name_of(Activation activation) {
  return activation == Activation::silu ? "silu" : "gelu_tanh";
}

void gated_activation(const OpContext& context, const GatedActivationArgs& args) {
  validate(args);
  GatedActivationRange* kernel = kernel_for(context.instruction_set, args.activation);
  parallel_ranges(context, args.rows * args.width, min_elements,
                  [&args, kernel](std::int64_t begin, std::int64_t end) {
                    kernel(args.gate + begin, args.up + begin, args.y + begin, end - begin);
                  });
}

}  // namespace octet
