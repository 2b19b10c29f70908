#include <cuda_runtime.h>

#include "bench/sustained.h"
#include "bench/weight_read_rate.h"
#include "core/cuda/check.h"
#include "core/cuda/ptx.cuh"

namespace octet {

namespace {

constexpr int stages = 4;
constexpr int piece_bytes = 16384;
constexpr int blocks_per_multiprocessor = 3;

// One thread a block starts copies; each block takes every gridDim-th piece.
__global__ void __launch_bounds__(32) read_in_order(const std::byte* data, std::size_t bytes) {
  extern __shared__ __align__(128) std::uint8_t buffers[];
  __shared__ std::uint64_t full[stages];
  if (threadIdx.x != 0) return;
  for (std::uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
  ptx::mbarrier_init_fence();
  int count = 0;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * piece_bytes;
  for (std::size_t at = static_cast<std::size_t>(blockIdx.x) * piece_bytes; at < bytes;
       at += step, ++count) {
    const int stage = count % stages;
    if (count >= stages) ptx::mbarrier_wait(&full[stage], (count / stages - 1) & 1);
    const auto size =
        static_cast<std::uint32_t>(bytes - at < piece_bytes ? bytes - at : piece_bytes);
    ptx::mbarrier_expect(&full[stage], size);
    ptx::bulk_copy(buffers + stage * piece_bytes, data + at, size, &full[stage]);
  }
  for (int last = count > stages ? count - stages : 0; last < count; ++last) {
    ptx::mbarrier_wait(&full[last % stages], (last / stages) & 1);
  }
}

}  // namespace

double measure_weight_read_rate(const std::byte* data, std::size_t bytes, int multiprocessors) {
  constexpr int shared_bytes = stages * piece_bytes;
  check_cuda(cudaFuncSetAttribute(read_in_order, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  shared_bytes),
             "cudaFuncSetAttribute");
  const SustainedTime time = time_sustained(2, [&](int, cudaStream_t stream) {
    const auto grid = static_cast<unsigned>(blocks_per_multiprocessor * multiprocessors);
    read_in_order<<<grid, 32, shared_bytes, stream>>>(data, bytes);
    check_cuda(cudaGetLastError(), "launch of the read rate's kernel");
  });
  return static_cast<double>(bytes) / time.median_microseconds * 1e-6;
}

}  // namespace octet
