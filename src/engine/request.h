// What the engine is asked and what it answers: native types, no JSON.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace octet {

// How a token is chosen. All of it means what vLLM means by the same name, in vLLM's order:
// logit_bias and min_tokens, then the penalties, then temperature, min_p, top_k and top_p.
// Log-probabilities are the model's own, before any of these.
struct SamplingParams {
  std::int64_t max_tokens = 256;      // 0 only with prompt_logprobs: the prompt is read, no more
  std::int64_t min_tokens = 0;        // no end token and no stop string before so many
  float temperature = 0.0f;           // 0: greedy, the lowest id among equals
  std::int64_t top_k = 0;             // keep the k most likely; 0: all
  float top_p = 1.0f;                 // keep the smallest set whose probability reaches p
  float min_p = 0.0f;                 // keep those at least p times as likely as the most likely
  std::optional<std::uint64_t> seed;  // missing: drawn from the system
  // Of a token that the prompt or the answer holds, a positive logit is divided by it and a
  // negative one multiplied (Keskar et al. 2019); 1: off.
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;   // subtracted from the logit of a token that the answer holds
  float frequency_penalty = 0.0f;  // subtracted once for each time that the answer holds it
  std::vector<std::pair<TokenId, float>> logit_bias;  // added to the logits of these tokens
  std::vector<std::string> stop;                      // the answer ends before the first of these
  std::vector<TokenId> stop_token_ids;                // these end the answer, as end tokens do
  bool ignore_eos = false;                            // not for stop_token_ids
  int logprobs = -1;         // alternatives to report per token; -1: none, 0: the token's own
  int prompt_logprobs = -1;  // the same for the prompt's tokens, which are then all computed

  // Throws Error{bad_input} that names the parameter.
  void validate() const;
  bool has_penalties() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

struct GenerateRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  // Only requests with the same salt share cached pages, so that none can learn from the time its
  // answer takes what another was asked.
  std::string cache_salt;
};

struct TokenLogprobs {
  float logprob = 0;  // of the token, under the model's own distribution (temperature 1, no filter)
  std::vector<std::pair<TokenId, float>> top;  // most likely first
};

enum class FinishReason { none, stop, length, cancelled, error };
// "stop", "length", "cancelled", "error"; "" for none.
const char* name_of(FinishReason reason);

using RequestId = std::int64_t;

using EngineClock = std::chrono::steady_clock;

// When things happened to a request; the epoch where they did not yet.
struct RequestTimes {
  EngineClock::time_point arrival;
  EngineClock::time_point first_scheduled;  // the queue ends here
  EngineClock::time_point first_token;
};

// One token of one answer, or its end, or a part of the prompt's log-probabilities.
struct TokenEvent {
  RequestId request = 0;
  TokenId token = -1;  // -1: no token, only text or an end
  std::string text;    // what may be shown now; a possible start of a stop string is held back
  std::optional<TokenLogprobs> logprobs;
  // With prompt_logprobs: of the prompt's tokens from the second on (the first has none), in their
  // order, a chunk at a time, before the first token.
  std::vector<TokenLogprobs> prompt_logprobs;
  FinishReason finished = FinishReason::none;
  std::string message;  // why, where finished is cancelled or error
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;     // of the prompt, that were found in the cache
  std::int64_t generated_tokens = 0;  // up to this one
  RequestTimes times;
};

}  // namespace octet
