// A load on a server that speaks OpenAI's API, and what its clients see: `octet bench serve`.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace octet {

enum class ServeEndpoint { completions, chat };

struct ServeLoad {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
  ServeEndpoint endpoint = ServeEndpoint::completions;
  std::string path = "/v1/completions";
  std::string model;  // "": the server's first
  std::string api_key;
  std::int64_t prompts = 1000;
  std::int64_t warmups = 0;  // requests before the measured ones
  std::int64_t input_len = 1024;
  std::int64_t output_len = 128;
  // Lengths are drawn evenly from [len * (1 - ratio), len * (1 + ratio)].
  double range_ratio = 0;
  std::int64_t max_concurrency = 0;  // 0: no limit
  double request_rate = 0;           // requests a second, Poisson arrivals; 0: all at once
  bool ignore_eos = false;
  double temperature = 0;
  std::uint64_t seed = 0;
  std::chrono::seconds timeout{6 * 3600};  // of one request
};

// What one request's client saw. Times in seconds.
struct ServeRecord {
  bool completed = false;
  std::string error;               // where not
  std::int64_t input_tokens = 0;   // as the server counts them, or as asked for where it does not
  std::int64_t output_tokens = 0;  // likewise: else the chunks that held text
  double start = 0;                // since the load's start
  double latency = 0;
  double first_token = 0;     // since the request's start
  std::vector<double> gaps;   // between the chunks that held text
  std::vector<double> times;  // of those chunks, since the load's start
};

struct ServeResult {
  std::string model;
  double duration = 0;
  std::vector<ServeRecord> records;
  std::int64_t most_at_once = 0;
};

// Runs the load from one thread. Throws Error{bad_input} where the server cannot be asked for its
// model; a request that fails is a record. `progress` is told how many requests are done.
ServeResult run_serve_load(const ServeLoad& load,
                           const std::function<void(std::int64_t done)>& progress);

}  // namespace octet
