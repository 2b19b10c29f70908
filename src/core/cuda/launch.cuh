// Launches of kernels that may overlap the end of the kernel before them.
#pragma once

#include <cstddef>
#include <utility>

#include <cuda_runtime.h>

#include "core/cuda/check.h"
#include "core/cuda/launch.h"

namespace octet {

// Every kernel that is launched below calls this before it reads or writes what a kernel before it
// in the stream writes or reads. It returns at once where nothing overlaps.
__device__ __forceinline__ void begin_after_previous_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next kernel's blocks take the multiprocessors that this one leaves idle. They wait for
// this kernel's end all the same, so that it may be called early.
__device__ __forceinline__ void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// `name` is what an error calls the launch. Nothing is launched for an empty grid.
template <typename... Parameters, typename... Arguments>
void launch_kernel(const CudaLaunch& launch, const char* name, void (*kernel)(Parameters...),
                   dim3 grid, dim3 block, std::size_t shared_bytes, Arguments&&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = launch.stream;
  config.attrs = &overlap;
  config.numAttrs = launch.overlap ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, Parameters(std::forward<Arguments>(arguments))...),
             name);
}

}  // namespace octet
