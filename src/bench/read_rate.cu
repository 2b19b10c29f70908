#include <cuda_runtime.h>

#include "bench/read_rate.h"
#include "bench/sustained.h"
#include "core/cuda/ptx.cuh"

namespace octet {

namespace {

constexpr int stages = 4;
constexpr int piece_bytes = 16384;
constexpr int blocks_per_multiprocessor = 3;  // 192 KB in flight: the fastest of those measured

// One thread a block starts copies; each block takes every gridDim-th run.
__global__ void __launch_bounds__(32)
    read_kernel(const std::byte* arena, const PageId* pages, std::int64_t runs, int kv_heads,
                std::size_t run_bytes) {
  extern __shared__ std::uint8_t raw[];
  auto* buffers = raw + (128 - ptx::shared_address(raw) % 128) % 128;
  __shared__ std::uint64_t full[stages];
  if (threadIdx.x != 0) return;
  for (std::uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
  ptx::mbarrier_init_fence();
  int count = 0;
  for (std::int64_t run = blockIdx.x; run < runs; run += gridDim.x) {
    const std::byte* from =
        arena +
        (static_cast<std::size_t>(pages[run / kv_heads]) * kv_heads + run % kv_heads) * run_bytes;
    for (std::size_t at = 0; at < run_bytes; at += piece_bytes, ++count) {
      const int stage = count % stages;
      if (count >= stages) ptx::mbarrier_wait(&full[stage], (count / stages - 1) & 1);
      const auto bytes =
          static_cast<std::uint32_t>(run_bytes - at < piece_bytes ? run_bytes - at : piece_bytes);
      ptx::mbarrier_expect(&full[stage], bytes);
      ptx::bulk_copy(buffers + stage * piece_bytes, from + at, bytes, &full[stage]);
    }
  }
  for (int last = count > stages ? count - stages : 0; last < count; ++last) {
    ptx::mbarrier_wait(&full[last % stages], (last / stages) & 1);
  }
}

}  // namespace

double measure_read_rate(const RandomCache& cache, int kv_heads, int multiprocessors) {
  constexpr int shared_bytes = stages * piece_bytes + 128;
  check_cuda(
      cudaFuncSetAttribute(read_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
      "cudaFuncSetAttribute");
  const KvLayerView layer = cache.layer();
  const SustainedTime time = time_sustained(2, [&](int, cudaStream_t stream) {
    const auto grid = static_cast<unsigned>(blocks_per_multiprocessor * multiprocessors);
    read_kernel<<<grid, 32, shared_bytes, stream>>>(layer.arena, cache.pages_in_order(),
                                                    cache.pages() * kv_heads, kv_heads,
                                                    layer.group->run.bytes);
    check_cuda(cudaGetLastError(), "launch of the read rate's kernel");
  });
  return static_cast<double>(cache.bytes()) / time.median_microseconds * 1e-6;
}

}  // namespace octet
