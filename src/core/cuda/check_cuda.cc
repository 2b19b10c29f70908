#include "core/cuda/check.h"
#include "core/error.h"

namespace octet {

void check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  const ErrorKind kind =
      status == cudaErrorMemoryAllocation ? ErrorKind::out_of_memory : ErrorKind::device;
  throw_error(kind, "{} failed: {}", call, cudaGetErrorString(status));
}

}  // namespace octet
