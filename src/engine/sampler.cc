#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "ops/cpu/portable_exp.h"

namespace octet {

namespace {

std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Sums and maxima run in so many lanes that a compiler finds vectors in them; the order of
// additions is fixed by it, whatever the machine.
constexpr std::size_t lanes = 16;

// The largest element; NaN counts as none. -inf for an empty row.
float largest(std::span<const float> row) {
  std::array<float, lanes> best;
  best.fill(-std::numeric_limits<float>::infinity());
  std::size_t i = 0;
  for (; i + lanes <= row.size(); i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      best[lane] = row[i + lane] > best[lane] ? row[i + lane] : best[lane];
    }
  }
  for (; i < row.size(); ++i) best[0] = row[i] > best[0] ? row[i] : best[0];
  return *std::max_element(best.begin(), best.end());
}

double sum(std::span<const float> row) {
  std::array<double, lanes> sums{};
  std::size_t i = 0;
  for (; i + lanes <= row.size(); i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      sums[lane] += static_cast<double>(row[i + lane]);
    }
  }
  for (; i < row.size(); ++i) sums[0] += static_cast<double>(row[i]);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

// Counts NaN and +inf in a way that compilers vectorise.
bool has_non_numbers(std::span<const float> logits) {
  int found = 0;
  for (const float logit : logits) {
    found |= logit < std::numeric_limits<float>::infinity() ? 0 : 1;
  }
  return found != 0;
}

// Tokens that are drawn from one at a time are summed up in runs of this many.
constexpr std::size_t run_tokens = 256;

// The power of two at or below a weight in [0, 1], as its distance from 1: 0 for 1, at most 127.
std::size_t halvings(float weight) {
  return 127 - std::min<std::size_t>(std::bit_cast<std::uint32_t>(weight) >> 23, 127);
}
constexpr std::size_t most_halvings = 128;

}  // namespace

// A NaN or +inf has no place in a softmax: every probability would be NaN.
void refuse_non_numbers(std::span<const float> logits) {
  if (!has_non_numbers(logits)) return;
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
  const float highest = largest(logits);
  if (highest == -std::numeric_limits<float>::infinity()) return -1;
  return static_cast<TokenId>(std::find(logits.begin(), logits.end(), highest) - logits.begin());
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
  weigh(logits, logits[static_cast<std::size_t>(best)], params);
  const double uniform = uniform_draw(seed, draw);
  return params.top_k > 0 || params.top_p < 1.0f ? draw_from_likely(logits, params, uniform)
                                                 : draw_from_all(uniform);
}

void Sampler::weigh(std::span<const float> logits, float highest, const SamplingParams& params) {
  const float temperature = params.temperature;
  const float bound = params.min_p > 0.0f ? highest + temperature * std::log(params.min_p)
                                          : -std::numeric_limits<float>::infinity();
  weights_.resize(logits.size());
  for (std::size_t token = 0; token < logits.size(); ++token) {
    const float weight = portable_exp((logits[token] - highest) / temperature);
    weights_[token] = logits[token] >= bound ? weight : 0.0f;
  }
}

TokenId Sampler::draw_from_all(double uniform) const {
  const std::span<const float> weights(weights_);
  double rest = uniform * sum(weights);
  std::size_t last_possible = 0;
  for (std::size_t first = 0; first < weights.size(); first += run_tokens) {
    const std::span<const float> run =
        weights.subspan(first, std::min(run_tokens, weights.size() - first));
    const double of_run = sum(run);
    // Rounding may leave a sliver past the last token: it falls to the last that is possible.
    if (of_run > 0) last_possible = first;
    if (rest >= of_run) {
      rest -= of_run;
      continue;
    }
    for (std::size_t i = 0; i < run.size(); ++i) {
      rest -= static_cast<double>(run[i]);
      if (rest < 0) return static_cast<TokenId>(first + i);
    }
    break;
  }
  std::size_t token = std::min(last_possible + run_tokens, weights.size()) - 1;
  while (weights[token] == 0.0f) --token;
  return static_cast<TokenId>(token);
}

// Those among which the top k and the top p must be: everything down to the power of two at which
// there are enough of them. Few are left to sort, where the whole vocabulary would take
// milliseconds.
void Sampler::gather_likely(std::span<const float> logits, const SamplingParams& params) {
  std::array<std::int64_t, most_halvings> counts{};
  std::array<double, most_halvings> masses{};
  for (const float weight : weights_) {
    ++counts[halvings(weight)];
    masses[halvings(weight)] += static_cast<double>(weight);
  }
  const double total = std::accumulate(masses.begin(), masses.end(), 0.0);
  std::size_t last = 0;
  std::int64_t count = counts[0];
  double mass = masses[0];
  const auto enough = [&] {
    if (params.top_k > 0) return count >= params.top_k;
    // A little more than p: these sums round otherwise than the sorted one.
    return mass >= total * (static_cast<double>(params.top_p) + 1e-6);
  };
  while (!enough() && last + 1 < most_halvings) {
    ++last;
    count += counts[last];
    mass += masses[last];
  }
  candidates_.clear();
  for (std::size_t token = 0; token < weights_.size(); ++token) {
    if (weights_[token] > 0.0f && halvings(weights_[token]) <= last) {
      candidates_.push_back(
          {static_cast<TokenId>(token), logits[token], static_cast<double>(weights_[token])});
    }
  }
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  });
}

TokenId Sampler::draw_from_likely(std::span<const float> logits, const SamplingParams& params,
                                  double uniform) {
  gather_likely(logits, params);
  double total = 0;
  if (params.top_k > 0) {
    candidates_.resize(std::min(candidates_.size(), static_cast<std::size_t>(params.top_k)));
    for (const Candidate& candidate : candidates_) total += candidate.weight;
  } else {
    total = sum(weights_);
  }
  if (params.top_p < 1.0f) {
    const double wanted = total * static_cast<double>(params.top_p);
    double kept = 0;
    std::size_t count = 0;
    while (count < candidates_.size() && kept < wanted) kept += candidates_[count++].weight;
    candidates_.resize(count);
    total = kept;
  }
  double rest = uniform * total;
  for (const Candidate& candidate : candidates_) {
    rest -= candidate.weight;
    if (rest < 0) return candidate.token;
  }
  return candidates_.back().token;  // rounding left a sliver past the last
}

TokenLogprobs compute_logprobs(std::span<const float> logits, TokenId token, int count) {
  const float highest = largest(logits);
  const double base =
      highest == -std::numeric_limits<float>::infinity() ? 0.0 : static_cast<double>(highest);
  std::array<double, lanes> sums{};
  std::size_t i = 0;
  for (; i + lanes <= logits.size(); i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      sums[lane] += static_cast<double>(portable_exp(logits[i + lane] - static_cast<float>(base)));
    }
  }
  for (; i < logits.size(); ++i) {
    sums[0] += static_cast<double>(portable_exp(logits[i] - static_cast<float>(base)));
  }
  const double log_sum = base + std::log(std::accumulate(sums.begin(), sums.end(), 0.0));
  const auto logprob = [&](TokenId id) {
    return static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(id)]) - log_sum);
  };

  TokenLogprobs result;
  result.logprob = logprob(token);
  const auto wanted = std::min(static_cast<std::size_t>(std::max(count, 0)), logits.size());
  if (wanted == 0) return result;
  // The best so far as a heap whose top is the worst of them: most logits only look at it.
  std::vector<TokenId> best;
  const auto better = [&logits](TokenId a, TokenId b) {
    const float left = logits[static_cast<std::size_t>(a)];
    const float right = logits[static_cast<std::size_t>(b)];
    return left != right ? left > right : a < b;
  };
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const auto candidate = static_cast<TokenId>(id);
    if (best.size() == wanted) {
      if (!better(candidate, best.front())) continue;
      std::pop_heap(best.begin(), best.end(), better);
      best.pop_back();
    }
    best.push_back(candidate);
    std::push_heap(best.begin(), best.end(), better);
  }
  std::sort_heap(best.begin(), best.end(), better);
  for (const TokenId id : best) {
    const float value = logprob(id);
    if (std::isinf(value)) break;  // impossible tokens, and all after them
    result.top.emplace_back(id, value);
  }
  return result;
}

}  // namespace octet
