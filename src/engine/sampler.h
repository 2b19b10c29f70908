// Logits to a token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"

namespace octet {

// Draws from one row of logits. The random number is a hash of (seed, draw): the same request gives
// the same tokens whatever else is in the batch, and after a preemption.
class Sampler {
 public:
  // `draw` counts the tokens that the request got before this one. Throws Error{internal} where a
  // logit is NaN or +inf, or all are -inf.
  TokenId sample(std::span<const float> logits, const SamplingParams& params, std::uint64_t seed,
                 std::int64_t draw);

 private:
  struct Candidate {
    TokenId token;
    float logit;
    double weight;
  };
  void weigh(std::span<const float> logits, float highest, const SamplingParams& params);
  TokenId draw_from_all(double uniform) const;
  TokenId draw_from_likely(std::span<const float> logits, const SamplingParams& params,
                           double uniform);
  void gather_likely(std::span<const float> logits, const SamplingParams& params);

  // Grown once and kept.
  std::vector<float> weights_;  // of all tokens: 1 for the most likely, 0 for those filtered out
  std::vector<Candidate> candidates_;
};

// Throws Error{internal} where a logit is NaN or +inf.
void refuse_non_numbers(std::span<const float> logits);

// The most likely token, the lowest id among equals; -1 where every logit is NaN or -inf.
TokenId most_likely(std::span<const float> logits);

// log softmax of the row at `token`, and of the `count` most likely tokens that are possible at
// all. The row holds no NaN and no +inf.
TokenLogprobs compute_logprobs(std::span<const float> logits, TokenId token, int count);

// In [0, 1), the same for the same seed and draw (SplitMix64's finaliser, Steele et al. 2014).
double uniform_draw(std::uint64_t seed, std::int64_t draw);

}  // namespace octet
