// What `octet generate` reports beside the text.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace octet {

class GenerationReport {
 public:
  using Clock = std::chrono::steady_clock;

  double load_seconds = 0;
  std::vector<TokenId> prompt;
  bool wants_logprobs = false;

  void add(TokenEvent event);
  // Times from `start`, when the request was submitted, to each token.
  void measure(Clock::time_point start);

  std::string as_json(const Engine& engine) const;
  std::string as_text(const Engine& engine) const;

 private:
  struct Timing {
    double ttft_ms = 0;
    double itl_mean_ms = 0;
    double itl_p50_ms = 0;
    double itl_p99_ms = 0;
    double prefill_tokens_per_s = 0;
    double decode_tokens_per_s = 0;
  };

  std::string text_;
  std::vector<TokenEvent> tokens_;
  std::vector<Clock::time_point> times_;
  FinishReason finished_ = FinishReason::none;
  Timing timing_;
};

// {"fp8:fp8": 30}: how many layers cache in which formats, as "fp8:fp8 x 30".
std::string describe_layers(const KvPolicy& policy);

}  // namespace octet
