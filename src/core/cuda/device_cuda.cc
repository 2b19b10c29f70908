#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/cuda/check.h"
#include "core/cuda/device.h"
#include "core/error.h"

namespace octet {

namespace {

constexpr auto architectures = std::to_array<int>({OCTET_CUDA_ARCHITECTURES});

// Machine code runs on later GPUs of the same generation, but for Hopper's, which is its own.
constexpr bool runs_on(int made_for, int capability) {
  constexpr int hopper = 90;
  return made_for == hopper ? capability == hopper
                            : made_for / 10 == capability / 10 && made_for <= capability;
}

std::vector<double> capabilities() {
  std::vector<double> values;
  for (const int architecture : architectures) values.push_back(architecture / 10.0);
  return values;
}

}  // namespace

std::string cuda_unavailable_reason() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return "this machine has no NVIDIA driver";
  }
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess) {
    return fmt::format("the NVIDIA driver gives no GPU: {}", cudaGetErrorString(status));
  }
  if (devices == 0) return "the NVIDIA driver sees no GPU";
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
    return "the first GPU does not answer";
  }
  const int capability = 10 * properties.major + properties.minor;
  if (std::none_of(architectures.begin(), architectures.end(),
                   [&](int made_for) { return runs_on(made_for, capability); })) {
    return fmt::format(
        "{} has compute capability {}.{}, and this build's kernels are made for {:.1f}",
        properties.name, properties.major, properties.minor, fmt::join(capabilities(), ", "));
  }
  return "";
}

CudaDeviceInfo cuda_device_info() {
  const std::string reason = cuda_unavailable_reason();
  if (!reason.empty()) throw_error(ErrorKind::device, "{}", reason);
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  return {properties.name, properties.multiProcessorCount, properties.major * 10 + properties.minor,
          properties.totalGlobalMem, static_cast<std::size_t>(properties.l2CacheSize)};
}

std::size_t free_device_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

namespace {

class DeviceArena final : public MemoryArena {
 public:
  DeviceArena(std::byte* data, std::size_t bytes) : MemoryArena(data, bytes) {}
  ~DeviceArena() override { cudaFree(data()); }
  void fill(std::byte value) override {
    check_cuda(cudaMemset(data(), std::to_integer<int>(value), bytes()), "cudaMemset");
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
};

}  // namespace

std::unique_ptr<MemoryArena> allocate_device_arena(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is told here, and no later call is to find it
    throw_error(ErrorKind::out_of_memory,
                "a KV cache of {} bytes could not be had: the GPU has {} bytes free", bytes,
                free_device_bytes());
  }
  check_cuda(status, "cudaMalloc");
  return std::make_unique<DeviceArena>(static_cast<std::byte*>(memory), bytes);
}

}  // namespace octet
