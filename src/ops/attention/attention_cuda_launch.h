// Launches of the portable attention kernels, from where fmt is not known. Internal to
// src/ops/attention.
#pragma once

#include "core/cuda/launch.h"
#include "ops/attention/attention_decode_cuda_parameters.h"
#include "ops/attention/attention_prefill_cuda_parameters.h"

namespace octet {

void launch_attention_decode(const CudaLaunch& launch, const AttentionDecodeKernel& kernel,
                             int blocks, const AttentionDecodeParameters& parameters);
void launch_attention_prefill(const CudaLaunch& launch, const AttentionPrefillKernel& kernel,
                              int blocks, const AttentionPrefillParameters& parameters);

}  // namespace octet
