#include "core/cuda/check.h"
#include "core/error.h"

namespace octet {

void check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  const ErrorKind kind =
      status == cudaErrorMemoryAllocation ? ErrorKind::out_of_memory : ErrorKind::device;
  throw_error(kind, "{} failed: {}", call, cudaGetErrorString(status));
}

void check_internal(bool holds, const char* otherwise) {
  if (!holds) throw_error(ErrorKind::internal, "{}", otherwise);
}

void check_supported(bool holds, const char* otherwise) {
  if (!holds) throw_error(ErrorKind::unsupported, "{}", otherwise);
}

}  // namespace octet
