#include "core/cuda/device_reason.h"

#include <array>

#include <gtest/gtest.h>

namespace octet {
namespace {

constexpr std::array<int, 5> all_architectures = {90, 80, 89, 100, 120};

CudaDeviceProbe gpu(const std::string& name, int capability) {
  CudaDeviceProbe probe;
  probe.has_driver = true;
  probe.devices = 1;
  probe.answers = true;
  probe.name = name;
  probe.capability = capability;
  return probe;
}

TEST(CudaDeviceReason, SaysTheFirstThingThatIsMissing) {
  CudaDeviceProbe probe;
  EXPECT_EQ(cuda_unavailable_reason(probe, all_architectures), "this machine has no NVIDIA driver");
  probe.has_driver = true;
  EXPECT_EQ(cuda_unavailable_reason(probe, all_architectures), "the NVIDIA driver sees no GPU");
  probe.error = "CUDA driver version is insufficient for CUDA runtime version";
  EXPECT_EQ(cuda_unavailable_reason(probe, all_architectures),
            "the NVIDIA driver gives no GPU: CUDA driver version is insufficient for CUDA runtime "
            "version");
  probe.error.clear();
  probe.devices = 1;
  EXPECT_EQ(cuda_unavailable_reason(probe, all_architectures), "the first GPU does not answer");
}

TEST(CudaDeviceReason, NamesAGpuThatTheKernelsAreNotMadeFor) {
  EXPECT_EQ(cuda_unavailable_reason(gpu("Tesla T4", 75), all_architectures),
            "Tesla T4 has compute capability 7.5, and this build's kernels are made for 9.0, 8.0, "
            "8.9, 10.0, 12.0");
  const std::array<int, 1> hopper = {90};
  EXPECT_EQ(cuda_unavailable_reason(gpu("NVIDIA A100", 80), hopper),
            "NVIDIA A100 has compute capability 8.0, and this build's kernels are made for 9.0");
}

TEST(CudaDeviceReason, KernelsRunOnLaterGpusOfTheirGenerationButForHoppers) {
  for (const int capability : {80, 86, 87, 89, 90, 100, 103, 120, 121}) {
    EXPECT_EQ(cuda_unavailable_reason(gpu("a GPU", capability), all_architectures), "")
        << capability;
  }
  const std::array<int, 2> old = {80, 90};
  EXPECT_EQ(cuda_unavailable_reason(gpu("a GPU", 86), old), "");
  EXPECT_NE(cuda_unavailable_reason(gpu("a GPU", 100), old), "");
  const std::array<int, 1> ada = {89};
  EXPECT_NE(cuda_unavailable_reason(gpu("a GPU", 86), ada), "");
}

}  // namespace
}  // namespace octet
