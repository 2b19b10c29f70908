#include "ops/cpu/dispatch.h"

#include "core/error.h"

namespace octet {

void throw_no_kernel(std::string_view op, InstructionSet set) {
  throw_error(ErrorKind::internal, "{}: this build has no kernels for instruction set {}", op,
              name_of(set));
}

}  // namespace octet
