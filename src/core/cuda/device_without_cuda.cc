#include "core/cuda/device.h"
#include "core/error.h"

namespace octet {

std::string cuda_unavailable_reason() { return "this build has no CUDA backend (make cuda has)"; }

CudaDeviceInfo cuda_device_info() {
  throw_error(ErrorKind::device, "{}", cuda_unavailable_reason());
}

std::size_t free_device_bytes() { throw_error(ErrorKind::device, "{}", cuda_unavailable_reason()); }

std::unique_ptr<MemoryArena> allocate_device_arena(std::size_t) {
  throw_error(ErrorKind::device, "{}", cuda_unavailable_reason());
}

}  // namespace octet
