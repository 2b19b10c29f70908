// Checked calls of the CUDA runtime. Kept free of fmt, which nvcc 13 does not get through.
#pragma once

#include <cuda_runtime_api.h>

namespace octet {

// Throws Error{out_of_memory} or Error{device} that names the call.
void check_cuda(cudaError_t status, const char* call);

}  // namespace octet
