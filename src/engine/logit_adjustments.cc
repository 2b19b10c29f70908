#include "engine/logit_adjustments.h"

#include <limits>

namespace octet {

namespace {

float& logit_of(std::vector<float>& logits, TokenId token) {
  return logits[static_cast<std::size_t>(token)];
}

}  // namespace

void TokenCounts::add_prompt(std::span<const TokenId> prompt) {
  for (const TokenId token : prompt) counts_[token].in_prompt = true;
}

void TokenCounts::add_generated(TokenId token) { ++counts_[token].generated; }

std::span<const float> adjust_logits(std::span<const float> logits, const SamplingParams& params,
                                     const TokenCounts& counts, std::int64_t generated,
                                     std::span<const TokenId> ends, std::vector<float>* buffer) {
  const bool too_short = generated < params.min_tokens;
  if (params.logit_bias.empty() && !too_short && !params.has_penalties()) return logits;
  buffer->assign(logits.begin(), logits.end());

  for (const auto& [token, bias] : params.logit_bias) logit_of(*buffer, token) += bias;
  if (too_short) {
    constexpr float never = -std::numeric_limits<float>::infinity();
    for (const TokenId token : params.stop_token_ids) logit_of(*buffer, token) = never;
    if (!params.ignore_eos) {
      for (const TokenId token : ends) logit_of(*buffer, token) = never;
    }
  }
  if (!params.has_penalties()) return *buffer;
  // Each token's logit depends on its own count alone, so the map's order is of no consequence.
  for (const auto& [token, count] : counts.counts()) {
    if (static_cast<std::size_t>(token) >= buffer->size()) continue;  // a padding row of the matrix
    float& logit = logit_of(*buffer, token);
    if (count.in_prompt || count.generated > 0) {
      logit = logit > 0.0f ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
    if (count.generated > 0) {
      logit -= params.frequency_penalty * static_cast<float>(count.generated);
      logit -= params.presence_penalty;
    }
  }
  return *buffer;
}

}  // namespace octet
