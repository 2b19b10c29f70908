#include "engine/request.h"

#include <cmath>

#include "core/error.h"

namespace octet {

namespace {

constexpr int most_logprobs = 1000;
// Of every token of a prompt that may be long: what an answer of 1,000 a token would weigh.
constexpr int most_prompt_logprobs = 20;
// Bounds on the work that one token of one answer may cost beside the model's.
constexpr std::size_t most_stops = 256;
constexpr std::size_t most_stop_bytes = 4096;
constexpr std::size_t most_stop_tokens = 1024;
constexpr std::size_t most_biases = 1024;
constexpr float largest_bias = 100.0f;
constexpr float largest_penalty = 2.0f;

void check_penalty(const char* name, float penalty) {
  if (!(std::fabs(penalty) <= largest_penalty)) {
    throw_bad_input("{} is {}, expected a number in [-2, 2]", name, penalty);
  }
}

void check_count(const char* name, std::size_t count, std::size_t most) {
  if (count > most) throw_bad_input("{} holds {} entries, expected at most {}", name, count, most);
}

void check_stops(const SamplingParams& params) {
  check_count("stop", params.stop.size(), most_stops);
  check_count("stop_token_ids", params.stop_token_ids.size(), most_stop_tokens);
  for (const std::string& text : params.stop) {
    if (text.empty()) throw_bad_input("stop holds an empty string, which every answer contains");
    if (text.size() > most_stop_bytes) {
      throw_bad_input("stop holds a string of {} bytes, expected at most {}", text.size(),
                      most_stop_bytes);
    }
  }
}

void check_lengths(const SamplingParams& params) {
  if (params.max_tokens < 1 && (params.max_tokens < 0 || params.prompt_logprobs < 0)) {
    throw_bad_input("max_tokens is {}, expected at least 1", params.max_tokens);
  }
  if (params.min_tokens < 0 || params.min_tokens > params.max_tokens) {
    throw_bad_input("min_tokens is {}, expected 0 to max_tokens, {}", params.min_tokens,
                    params.max_tokens);
  }
  if (params.logprobs < -1 || params.logprobs > most_logprobs) {
    throw_bad_input("logprobs is {}, expected 0 to {}", params.logprobs, most_logprobs);
  }
  if (params.prompt_logprobs < -1 || params.prompt_logprobs > most_prompt_logprobs) {
    throw_bad_input("prompt_logprobs is {}, expected 0 to {}", params.prompt_logprobs,
                    most_prompt_logprobs);
  }
}

}  // namespace

void SamplingParams::validate() const {
  check_lengths(*this);
  if (!(temperature >= 0.0f) || !std::isfinite(temperature)) {
    throw_bad_input("temperature is {}, expected a number of at least 0", temperature);
  }
  if (top_k < 0) throw_bad_input("top_k is {}, expected at least 0 (0 keeps all tokens)", top_k);
  if (!(top_p > 0.0f && top_p <= 1.0f)) {
    throw_bad_input("top_p is {}, expected a number in (0, 1]", top_p);
  }
  if (!(min_p >= 0.0f && min_p <= 1.0f)) {
    throw_bad_input("min_p is {}, expected a number in [0, 1]", min_p);
  }
  if (!(repetition_penalty > 0.0f) || !std::isfinite(repetition_penalty)) {
    throw_bad_input("repetition_penalty is {}, expected a number above 0", repetition_penalty);
  }
  check_penalty("presence_penalty", presence_penalty);
  check_penalty("frequency_penalty", frequency_penalty);
  check_count("logit_bias", logit_bias.size(), most_biases);
  for (const auto& [token, bias] : logit_bias) {
    if (!(std::fabs(bias) <= largest_bias)) {
      throw_bad_input("logit_bias of token {} is {}, expected a number in [-100, 100]", token,
                      bias);
    }
  }
  check_stops(*this);
}

const char* name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::none:
      return "";
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::error:
      return "error";
  }
  return "";
}

}  // namespace octet
