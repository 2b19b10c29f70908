// What the engine is asked and what it answers: native types, no JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace octet {

// Filters apply in this order, as vLLM's: temperature, min_p, top_k, top_p.
struct SamplingParams {
  std::int64_t max_tokens = 256;
  float temperature = 0.0f;           // 0: greedy, the lowest id among equals
  std::int64_t top_k = 0;             // keep the k most likely; 0: all
  float top_p = 1.0f;                 // keep the smallest set whose probability reaches p
  float min_p = 0.0f;                 // keep those at least p times as likely as the most likely
  std::optional<std::uint64_t> seed;  // missing: drawn from the system
  std::vector<std::string> stop;      // the answer ends before the first of these
  bool ignore_eos = false;
  int logprobs = -1;  // alternatives to report per token; -1: none, 0: the token's own

  // Throws Error{bad_input} that names the parameter.
  void validate() const;
};

struct GenerateRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
};

struct TokenLogprobs {
  float logprob = 0;  // of the token, under the model's own distribution (temperature 1, no filter)
  std::vector<std::pair<TokenId, float>> top;  // most likely first
};

enum class FinishReason { none, stop, length, cancelled };
// "stop", "length", "cancelled"; "" for none.
const char* name_of(FinishReason reason);

using RequestId = std::int64_t;

// One token of one answer, or its end.
struct TokenEvent {
  RequestId request = 0;
  TokenId token = -1;  // -1: no token, only text or an end
  std::string text;    // what may be shown now; a possible start of a stop string is held back
  std::optional<TokenLogprobs> logprobs;
  FinishReason finished = FinishReason::none;
};

}  // namespace octet
