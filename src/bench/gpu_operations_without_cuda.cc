#include "bench/gpu_operations.h"
#include "core/cuda/device.h"
#include "core/error.h"

namespace octet {

GpuOperationsReport bench_gpu_operations(const GpuOperationsBench&) {
  throw_unsupported("bench operations runs on an NVIDIA GPU, and {}", cuda_unavailable_reason());
}

}  // namespace octet
