// Why a machine's GPU cannot be had, from what its driver says of it.
#pragma once

#include <span>
#include <string>

namespace octet {

// What was found, in the order in which it is asked for: what comes later stands only where nothing
// is wrong before.
struct CudaDeviceProbe {
  bool has_driver = false;
  std::string error;  // of the driver, when it was asked for its GPUs; empty: none
  int devices = 0;
  bool answers = false;  // the first of them
  std::string name;
  int capability = 0;  // 90 for compute capability 9.0
};

// Empty where kernels made for one of `architectures` run there; else a sentence without its full
// stop.
std::string cuda_unavailable_reason(const CudaDeviceProbe& probe,
                                    std::span<const int> architectures);

}  // namespace octet
