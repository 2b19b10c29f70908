// Embedding look-up on the GPU.
#pragma once

#include <cstdint>

#include "ops/linear/device_matrix.h"

namespace octet {

struct CudaLaunch;  // core/cuda/launch.h

// residual[r][:] = scale * table[tokens[r]][:], decoded to float32 before it is multiplied; a token
// that is not in the table (-1 pads) gives zeros.
//   tokens: [rows]; residual: [rows, width], contiguous; both on the device.
struct EmbeddingCudaArgs {
  const DeviceMatrix* table = nullptr;
  const std::int32_t* tokens = nullptr;
  std::int64_t rows = 0;
  float* residual = nullptr;
  float scale = 1.0f;
};
void embedding_cuda(const CudaLaunch& launch, const EmbeddingCudaArgs& args);

}  // namespace octet
