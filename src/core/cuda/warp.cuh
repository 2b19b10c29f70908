// Sums and maxima over the threads of a warp and of a block, in an order that their number alone
// decides.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace octet {

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}
__device__ __forceinline__ float warp_maximum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  return x;
}

// For all threads of a block of at most 1024. `scratch` of 32 elements may be used again once the
// next barrier has been passed.
__device__ __forceinline__ float block_sum(float x, float* scratch) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = static_cast<int>(blockDim.x + 31) / 32;
  x = warp_sum(x);
  if (lane == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  return warp_sum(lane < warps ? scratch[lane] : 0.0f);
}

}  // namespace octet
