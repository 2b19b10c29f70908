#include <array>
#include <string>

#include <cuda_runtime_api.h>

#include "core/cuda/check.h"
#include "core/cuda/device.h"
#include "core/cuda/device_reason.h"
#include "core/error.h"

namespace octet {

namespace {

constexpr auto architectures = std::to_array<int>({OCTET_CUDA_ARCHITECTURES});

CudaDeviceProbe probe_device() {
  CudaDeviceProbe probe;
  int driver = 0;
  probe.has_driver = cudaDriverGetVersion(&driver) == cudaSuccess && driver != 0;
  if (!probe.has_driver) return probe;
  const cudaError_t status = cudaGetDeviceCount(&probe.devices);
  if (status != cudaSuccess) probe.error = cudaGetErrorString(status);
  cudaDeviceProp properties;
  if (status != cudaSuccess || probe.devices == 0 ||
      cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
    return probe;
  }
  probe.answers = true;
  probe.name = properties.name;
  probe.capability = 10 * properties.major + properties.minor;
  return probe;
}

}  // namespace

std::string cuda_unavailable_reason() {
  return cuda_unavailable_reason(probe_device(), architectures);
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
