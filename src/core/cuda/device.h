// Whether this build and this machine can compute on an NVIDIA GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "core/memory_arena.h"

namespace octet {

// Empty where a kernel of this build can run on the first GPU; otherwise why not, a sentence
// without its full stop: no backend built in, no driver, no GPU, or one that the kernels are not
// made for.
std::string cuda_unavailable_reason();

struct CudaDeviceInfo {
  std::string name;
  int multiprocessors = 0;
  int architecture = 0;  // 90 for compute capability 9.0
  std::size_t memory_bytes = 0;
  std::size_t l2_bytes = 0;
};
// Of the first GPU. Throws Error{device} with cuda_unavailable_reason() where there is none.
CudaDeviceInfo cuda_device_info();

// Of the first GPU, now. Throws Error{device}.
std::size_t free_device_bytes();
// Memory of the first GPU. Throws Error{out_of_memory} that says how much is free.
std::unique_ptr<MemoryArena> allocate_device_arena(std::size_t bytes);

}  // namespace octet
