#include "core/cuda/launch.cuh"
#include "ops/attention/attention_cuda_launch.h"

namespace octet {

void launch_attention_decode(const CudaLaunch& launch, const AttentionDecodeKernel& kernel,
                             int blocks, const AttentionDecodeParameters& parameters) {
  launch_kernel(launch, "launch of decode attention", kernel.function,
                dim3(static_cast<unsigned>(blocks)), dim3(32 * attention_decode_warps),
                kernel.shared_bytes, parameters);
}

void launch_attention_prefill(const CudaLaunch& launch, const AttentionPrefillKernel& kernel,
                              int blocks, const AttentionPrefillParameters& parameters) {
  launch_kernel(launch, "launch of prefill attention", kernel.function,
                dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(kernel.threads)),
                kernel.shared_bytes, parameters);
}

}  // namespace octet
