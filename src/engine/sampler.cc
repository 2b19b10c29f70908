#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace octet {

namespace {

std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

// A NaN or +inf has no place in a softmax: every probability would be NaN.
void refuse_non_numbers(std::span<const float> logits) {
  for (std::size_t token = 0; token < logits.size(); ++token) {
    if (!(logits[token] < std::numeric_limits<float>::infinity())) {
      throw_error(ErrorKind::internal,
                  "the model's logit of token {} is {}, so no token can be chosen", token,
                  std::isnan(logits[token]) ? "not a number" : "infinite");
    }
  }
}

double uniform_draw(std::uint64_t seed, std::int64_t draw) {
  const std::uint64_t bits = mix(mix(seed) ^ static_cast<std::uint64_t>(draw));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

TokenId most_likely(std::span<const float> logits) {
  TokenId best = -1;
  float highest = -std::numeric_limits<float>::infinity();
  for (std::size_t token = 0; token < logits.size(); ++token) {
    if (logits[token] > highest) {
      highest = logits[token];
      best = static_cast<TokenId>(token);
    }
  }
  return best;
}

TokenId Sampler::sample(std::span<const float> logits, const SamplingParams& params,
                        std::uint64_t seed, std::int64_t draw) {
  refuse_non_numbers(logits);
  const TokenId best = most_likely(logits);
  if (best < 0) {
    throw_error(ErrorKind::internal,
                "the model gave no logit that is a number, so no token can be chosen");
  }
  if (params.temperature == 0.0f) return best;

  // min_p first: it is a bound on the logits and leaves few candidates to sort.
  const float highest = logits[static_cast<std::size_t>(best)];
  const float bound = params.min_p > 0.0f ? highest + params.temperature * std::log(params.min_p)
                                          : -std::numeric_limits<float>::infinity();
  candidates_.clear();
  for (std::size_t token = 0; token < logits.size(); ++token) {
    if (logits[token] >= bound && logits[token] > -std::numeric_limits<float>::infinity()) {
      candidates_.push_back({static_cast<TokenId>(token), logits[token]});
    }
  }
  const auto more_likely = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  const auto size = static_cast<std::int64_t>(candidates_.size());
  if (params.top_k > 0 && params.top_k < size) {
    std::nth_element(candidates_.begin(), candidates_.begin() + params.top_k, candidates_.end(),
                     more_likely);
    candidates_.resize(static_cast<std::size_t>(params.top_k));
  }
  if (params.top_k > 0 || params.top_p < 1.0f) {
    std::sort(candidates_.begin(), candidates_.end(), more_likely);
  }

  weights_.clear();
  double total = 0;
  for (const Candidate& candidate : candidates_) {
    weights_.push_back(std::exp(static_cast<double>(candidate.logit - highest) /
                                static_cast<double>(params.temperature)));
    total += weights_.back();
  }
  if (params.top_p < 1.0f) {
    const double wanted = total * static_cast<double>(params.top_p);
    double kept = 0;
    std::size_t count = 0;
    while (count < weights_.size() && kept < wanted) kept += weights_[count++];
    weights_.resize(count);
    total = kept;
  }

  double rest = uniform_draw(seed, draw) * total;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    rest -= weights_[i];
    if (rest < 0) return candidates_[i].token;
  }
  return candidates_[weights_.size() - 1].token;  // rounding left a sliver past the last
}

TokenLogprobs compute_logprobs(std::span<const float> logits, TokenId token, int count) {
  const TokenId best = most_likely(logits);
  const double highest = best < 0 ? 0.0 : logits[static_cast<std::size_t>(best)];
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - highest);
  const double log_sum = highest + std::log(sum);
  const auto logprob = [&](TokenId id) {
    return static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(id)]) - log_sum);
  };

  TokenLogprobs result;
  result.logprob = logprob(token);
  const auto wanted = std::min(static_cast<std::size_t>(std::max(count, 0)), logits.size());
  if (wanted == 0) return result;
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(wanted), ids.end(),
                    [&](TokenId a, TokenId b) {
                      const float left = logits[static_cast<std::size_t>(a)];
                      const float right = logits[static_cast<std::size_t>(b)];
                      return left != right ? left > right : a < b;
                    });
  for (std::size_t i = 0; i < wanted; ++i) {
    const float value = logprob(ids[i]);
    if (std::isinf(value)) break;  // impossible tokens, and all after them
    result.top.emplace_back(ids[i], value);
  }
  return result;
}

}  // namespace octet
