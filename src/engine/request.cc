#include "engine/request.h"

#include <cmath>

#include "core/error.h"

namespace octet {

namespace {

constexpr int most_logprobs = 1000;

}  // namespace

void SamplingParams::validate() const {
  if (max_tokens < 1) throw_bad_input("max_tokens is {}, expected at least 1", max_tokens);
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
  if (logprobs < -1 || logprobs > most_logprobs) {
    throw_bad_input("logprobs is {}, expected 0 to {}", logprobs, most_logprobs);
  }
  for (const std::string& text : stop) {
    if (text.empty()) throw_bad_input("stop holds an empty string, which every answer contains");
  }
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
  }
  return "";
}

}  // namespace octet
