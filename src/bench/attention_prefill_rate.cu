#include <cuda_runtime.h>

#include "bench/attention_prefill_rate.h"
#include "bench/sustained.h"
#include "core/cuda/check.h"
#include "core/cuda/device_memory.h"
#include "core/cuda/ptx.cuh"
#include "core/cuda/wgmma_e4m3.cuh"

namespace octet {

namespace {

constexpr int warpgroups = 2;
constexpr int products = 4096;  // of each warpgroup: 64 x 128 x 32

struct Operands {
  alignas(1024) std::uint8_t a[warpgroups][64 * 128];
  alignas(1024) std::uint8_t b[128 * 128];
};

__global__ void __launch_bounds__(128 * warpgroups) multiply_kernel(float* sums) {
  extern __shared__ std::uint8_t dynamic_shared[];
  auto& shared = *reinterpret_cast<Operands*>(
      dynamic_shared + (1024 - ptx::shared_address(dynamic_shared) % 1024) % 1024);
  // Bits of a linear congruential generator; no code is NaN.
  auto* bytes = reinterpret_cast<std::uint8_t*>(&shared);
  for (unsigned i = threadIdx.x; i < sizeof(Operands); i += blockDim.x) {
    const unsigned bits = ((i + 1) * 747796405u + 2891336453u) * 277803737u >> 24;
    bytes[i] = static_cast<std::uint8_t>((bits & 0x7F) == 0x7F ? 0 : bits);
  }
  ptx::fence_async_shared();
  __syncthreads();
  float sum[64];
  const int group = static_cast<int>(threadIdx.x) / 128;
  for (int i = 0; i < products / 4; ++i) {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      ptx::wgmma_e4m3(sum, ptx::matrix_descriptor<128>(shared.a[group] + 32 * step),
                      ptx::matrix_descriptor<128>(shared.b + 32 * step), i + step > 0);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait();
  }
  float total = 0;
#pragma unroll
  for (int i = 0; i < 64; ++i) total += sum[i];
  sums[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

}  // namespace

double measure_multiply_rate(int multiprocessors) {
  constexpr int shared_bytes = sizeof(Operands) + 1024;
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(multiply_kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
             "cudaFuncSetAttribute");
  // Two blocks a multiprocessor, so that one multiplies while the other waits.
  const int blocks = 2 * multiprocessors;
  DeviceArray<float> sums(static_cast<std::size_t>(blocks) * 128 * warpgroups);
  const SustainedTime time = time_sustained(8, [&](int, cudaStream_t stream) {
    multiply_kernel<<<static_cast<unsigned>(blocks), 128 * warpgroups, shared_bytes, stream>>>(
        sums.data());
    check_cuda(cudaGetLastError(), "launch of the multiplications");
  });
  const double operations = 2.0 * 64 * 128 * 32 * products * warpgroups * blocks;
  return operations / time.median_microseconds * 1e-6;
}

}  // namespace octet
