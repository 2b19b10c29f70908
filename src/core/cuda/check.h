// Checked calls of the CUDA runtime. Kept free of fmt, which nvcc 13 does not get through.
#pragma once

#include <cuda_runtime_api.h>

namespace octet {

// Throws Error{out_of_memory} or Error{device} that names the call.
void check_cuda(cudaError_t status, const char* call);

// Throw Error{internal} and Error{unsupported}, whose whole text is `otherwise`.
void check_internal(bool holds, const char* otherwise);
void check_supported(bool holds, const char* otherwise);

}  // namespace octet
