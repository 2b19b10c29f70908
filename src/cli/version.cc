#include "cli/version.h"

#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/cuda/device.h"
#include "core/instruction_set.h"
#include "models/model.h"
#include "ops/linear/linear.h"

namespace octet {

std::string version_text() {
  std::vector<std::string_view> sets;
  for (const InstructionSet set : available_instruction_sets()) sets.push_back(name_of(set));
  const std::string no_gpu = cuda_unavailable_reason();
  const std::string devices =
      no_gpu.empty() ? "cpu, cuda (" + cuda_device_info().name + ")" : "cpu (" + no_gpu + ")";
  const InstructionSet set = detect_instruction_set();
  return fmt::format(
      "octet {}\ndevices: {}\ninstruction set: {} (of {})\n"
      "arithmetic of quantised weights: {}\nmodel families: {}",
      OCTET_VERSION, devices, name_of(set), fmt::join(sets, ", "), name_of(fastest_arithmetic(set)),
      fmt::join(model_families(), ", "));
}

}  // namespace octet
