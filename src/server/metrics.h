// What /metrics tells, in Prometheus' text format: vLLM's names for what both engines have, so that
// dashboards and autoscalers made for it work, and octet's for the rest. docs/server.md lists them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_stats.h"
#include "server/http_message.h"

namespace octet {

// What never changes while the server runs.
struct ServedModelFacts {
  std::string model_name;  // as clients call it
  std::int64_t max_model_len = 0;
  std::int64_t cache_tokens = 0;  // that the whole arena holds
  // vllm:cache_config_info's labels.
  std::vector<std::pair<std::string, std::string>> cache_config;
};

// The observations are for the I/O thread.
class ServerMetrics {
 public:
  ServerMetrics(const ServedModelFacts& facts, std::function<EngineStats()> stats);
  ~ServerMetrics();

  void on_submitted(int choices, std::int64_t max_tokens);
  void on_first_token(EngineClock::duration since_arrival);
  void on_token_gap(EngineClock::duration gap);
  void on_finished(const TokenEvent& last, EngineClock::time_point now);
  void on_left(LeaveReason reason);
  void on_response(int status);

  std::string text() const;

 private:
  struct Instruments;
  std::unique_ptr<Instruments> instruments_;
};

}  // namespace octet
