// What a request does to the model's logits before a token is drawn from them.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/request.h"

namespace octet {

// How often a text holds each token; kept only for requests with penalties.
class TokenCounts {
 public:
  void add_prompt(std::span<const TokenId> prompt);
  void add_generated(TokenId token);

  struct Count {
    bool in_prompt = false;
    std::int32_t generated = 0;
  };
  const std::unordered_map<TokenId, Count>& counts() const { return counts_; }

 private:
  std::unordered_map<TokenId, Count> counts_;
};

// Applies logit_bias, min_tokens (`generated` tokens were drawn so far; `ends` are the tokenizer's)
// and the penalties, as vLLM defines them, to a copy of `logits` in `buffer`; gives back `logits`
// themselves where a request asks for none of it. Every token of logit_bias and stop_token_ids is
// inside the logits.
std::span<const float> adjust_logits(std::span<const float> logits, const SamplingParams& params,
                                     const TokenCounts& counts, std::int64_t generated,
                                     std::span<const TokenId> ends, std::vector<float>* buffer);

}  // namespace octet
