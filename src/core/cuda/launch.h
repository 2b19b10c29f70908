// What every operation on the GPU is told of where it runs.
#pragma once

#include <cuda_runtime_api.h>

namespace octet {

struct CudaLaunch {
  cudaStream_t stream = nullptr;
  int multiprocessors = 0;  // of the device; CudaDeviceInfo has it
  // Programmatic dependent launch: a kernel's blocks may start while the kernel before it in the
  // stream ends, and wait there for its results. Only where both are launched by launch_kernel().
  bool overlap = true;
};

}  // namespace octet
