// Tokens from logits on the GPU.
#pragma once

#include <cstdint>

#include "core/cuda/launch.h"

namespace octet {

// How one row's token is chosen; as SamplingParams (engine/request.h) means the same names.
struct SampleParameters {
  float temperature = 0;  // 0: greedy, the lowest id among equals
  float top_p = 1;
  float min_p = 0;
  std::int32_t top_k = 0;  // 0: all
  double uniform = 0;      // uniform_draw(seed, draw) of engine/sampler.h, in [0, 1)
};

enum class SampleStatus : std::int32_t {
  chosen,
  not_a_number,  // a logit is NaN or +inf, or all are -inf: no token can be chosen
  // More tokens stand for selection by top_k or top_p than the kernel sorts (sample_candidates):
  // the row's logits must go to the host's sampler.
  left_to_host,
};

inline constexpr int sample_candidates = 8192;

// tokens[i] is chosen from row row_ids[i] (null: row i; negative: padding, nothing is written) of
// logits, [.., vocabulary] float32, by parameters[i]; -1 where statuses[i] is not
// SampleStatus::chosen. All arrays are on the device, so that a captured launch follows what is
// written there. Weights are the bits that engine/sampler's portable_exp gives, and sums are exact
// (in units of 2^-45 of the likeliest token's weight), so that a draw is the host's but for draws
// within 2^-27 of the border between two tokens. Throws Error{internal} for missing arrays and
// negative extents, Error{unsupported} for a vocabulary beyond 2^18 (262144) tokens.
struct SampleCudaArgs {
  const float* logits = nullptr;
  std::int64_t logits_stride = 0;
  const std::int32_t* row_ids = nullptr;
  const SampleParameters* parameters = nullptr;
  std::int32_t* tokens = nullptr;
  SampleStatus* statuses = nullptr;
  int rows = 0;
  int vocabulary = 0;
};
void sample_cuda(const CudaLaunch& launch, const SampleCudaArgs& args);

}  // namespace octet
