#include "core/cuda/device_reason.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace octet {

namespace {

// Machine code runs on later GPUs of the same generation, but for Hopper's, which is its own.
constexpr bool runs_on(int made_for, int capability) {
  constexpr int hopper = 90;
  return made_for == hopper ? capability == hopper
                            : made_for / 10 == capability / 10 && made_for <= capability;
}

std::vector<double> capabilities(std::span<const int> architectures) {
  std::vector<double> values;
  for (const int architecture : architectures) values.push_back(architecture / 10.0);
  return values;
}

}  // namespace

std::string cuda_unavailable_reason(const CudaDeviceProbe& probe,
                                    std::span<const int> architectures) {
  if (!probe.has_driver) return "this machine has no NVIDIA driver";
  if (!probe.error.empty()) {
    return fmt::format("the NVIDIA driver gives no GPU: {}", probe.error);
  }
  if (probe.devices == 0) return "the NVIDIA driver sees no GPU";
  if (!probe.answers) return "the first GPU does not answer";
  if (std::any_of(architectures.begin(), architectures.end(),
                  [&](int made_for) { return runs_on(made_for, probe.capability); })) {
    return "";
  }
  return fmt::format(
      "{} has compute capability {:.1f}, and this build's kernels are made for {:.1f}", probe.name,
      probe.capability / 10.0, fmt::join(capabilities(architectures), ", "));
}

}  // namespace octet
