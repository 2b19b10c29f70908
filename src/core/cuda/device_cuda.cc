#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "core/cuda/check.h"
#include "core/cuda/device.h"
#include "core/error.h"

namespace octet {

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
  if (properties.major != 9 || properties.minor != 0) {
    return fmt::format("{} has compute capability {}.{}, and this build's kernels are made for 9.0",
                       properties.name, properties.major, properties.minor);
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

}  // namespace octet
