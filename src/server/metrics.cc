#include "server/metrics.h"

#include <algorithm>
#include <map>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "server/engine_collector.h"

namespace octet {

namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

// vLLM's bounds, and below its first of 10 ms finer ones: an 8-bit cache is worth a millisecond or
// two of an inter-token latency of 6 to 12.
const Buckets token_gap_buckets = {0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007, 0.008,
                                   0.009, 0.01,  0.012, 0.015, 0.02,  0.025, 0.05,  0.075,
                                   0.1,   0.15,  0.2,   0.3,   0.4,   0.5,   0.75,  1,
                                   2.5,   5,     7.5,   10,    20,    40,    80};
const Buckets first_token_buckets = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                     0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                     20,    40,    80,   160,  640,  2560};
const Buckets request_buckets = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                 30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
const Buckets choice_buckets = {1, 2, 5, 10, 20};

// 1, 2, 5, 10, 20, 50, ... up to the context's length.
Buckets length_buckets(std::int64_t most) {
  Buckets buckets;
  for (std::int64_t decade = 1; decade <= most; decade *= 10) {
    for (const std::int64_t step : {1, 2, 5}) {
      if (decade * step <= most) buckets.push_back(static_cast<double>(decade * step));
    }
  }
  return buckets;
}

double seconds(EngineClock::duration duration) {
  return std::max(0.0, std::chrono::duration<double>(duration).count());
}

bool is_set(EngineClock::time_point time) { return time != EngineClock::time_point(); }

}  // namespace

struct ServerMetrics::Instruments {
  Instruments(const ServedModelFacts& facts, std::function<EngineStats()> stats)
      : labels{{"model_name", facts.model_name}, {"engine", "0"}},
        collector(facts, std::move(stats)) {
    const Buckets lengths = length_buckets(facts.max_model_len);
    first_token = add("vllm:time_to_first_token_seconds",
                      "Time from a request's arrival to its first token.", first_token_buckets);
    token_gap = add("vllm:inter_token_latency_seconds",
                    "Time from one token of an answer to the next.", token_gap_buckets);
    time_per_token = add("vllm:request_time_per_output_token_seconds",
                         "Mean time of an answer's tokens after the first.", token_gap_buckets);
    whole_request = add("vllm:e2e_request_latency_seconds",
                        "Time from a request's arrival to its last token.", request_buckets);
    queue = add("vllm:request_queue_time_seconds", "Time that a request waited to be scheduled.",
                request_buckets);
    prefill = add("vllm:request_prefill_time_seconds",
                  "Time from a request's scheduling to its first token.", request_buckets);
    decode = add("vllm:request_decode_time_seconds",
                 "Time from a request's first token to its last.", request_buckets);
    inference = add("vllm:request_inference_time_seconds",
                    "Time from a request's scheduling to its last token.", request_buckets);
    prompt_length = add("vllm:request_prompt_tokens", "Tokens of a request's prompt.", lengths);
    answer_length = add("vllm:request_generation_tokens", "Tokens of an answer.", lengths);
    computed = add("vllm:request_prefill_kv_computed_tokens",
                   "Tokens of a prompt that were not found in the cache.", lengths);
    choices = add("vllm:request_params_n", "Answers that a request asked for.", choice_buckets);
    max_tokens =
        add("vllm:request_params_max_tokens", "The most tokens that a request asked for.", lengths);
    responses = &prometheus::BuildCounter()
                     .Name("octet:http_responses_total")
                     .Help("HTTP responses by status.")
                     .Register(registry);
    left =
        &prometheus::BuildCounter()
             .Name("octet:clients_left_total")
             .Help("Clients that left (gone), or were cut (too_slow), before their answer ended.")
             .Register(registry);
    for (const char* reason : {"gone", "too_slow"}) left->Add(with("reason", reason));
  }

  prometheus::Histogram* add(const char* name, const char* help, const Buckets& buckets) {
    return &prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels,
                                                                                      buckets);
  }
  std::map<std::string, std::string> with(const char* name, const std::string& value) const {
    auto all = labels;
    all[name] = value;
    return all;
  }

  std::map<std::string, std::string> labels;
  prometheus::Registry registry;
  EngineCollector collector;
  prometheus::Histogram* first_token;
  prometheus::Histogram* token_gap;
  prometheus::Histogram* time_per_token;
  prometheus::Histogram* whole_request;
  prometheus::Histogram* queue;
  prometheus::Histogram* prefill;
  prometheus::Histogram* decode;
  prometheus::Histogram* inference;
  prometheus::Histogram* prompt_length;
  prometheus::Histogram* answer_length;
  prometheus::Histogram* computed;
  prometheus::Histogram* choices;
  prometheus::Histogram* max_tokens;
  prometheus::Family<prometheus::Counter>* responses;
  prometheus::Family<prometheus::Counter>* left;
};

ServerMetrics::ServerMetrics(const ServedModelFacts& facts, std::function<EngineStats()> stats)
    : instruments_(std::make_unique<Instruments>(facts, std::move(stats))) {}

ServerMetrics::~ServerMetrics() = default;

void ServerMetrics::on_submitted(int choices, std::int64_t max_tokens) {
  instruments_->choices->Observe(choices);
  instruments_->max_tokens->Observe(static_cast<double>(max_tokens));
}

void ServerMetrics::on_first_token(EngineClock::duration since_arrival) {
  instruments_->first_token->Observe(seconds(since_arrival));
}

void ServerMetrics::on_token_gap(EngineClock::duration gap) {
  instruments_->token_gap->Observe(seconds(gap));
}

// A request that was ended before it was scheduled, or before its first token, has no such times.
void ServerMetrics::on_finished(const TokenEvent& last, EngineClock::time_point now) {
  Instruments& to = *instruments_;
  if (last.finished != FinishReason::stop && last.finished != FinishReason::length) return;
  const RequestTimes& times = last.times;
  to.prompt_length->Observe(static_cast<double>(last.prompt_tokens));
  to.answer_length->Observe(static_cast<double>(last.generated_tokens));
  to.computed->Observe(static_cast<double>(last.prompt_tokens - last.cached_tokens));
  to.whole_request->Observe(seconds(now - times.arrival));
  if (!is_set(times.first_scheduled)) return;
  to.queue->Observe(seconds(times.first_scheduled - times.arrival));
  to.inference->Observe(seconds(now - times.first_scheduled));
  if (!is_set(times.first_token)) return;
  to.prefill->Observe(seconds(times.first_token - times.first_scheduled));
  to.decode->Observe(seconds(now - times.first_token));
  if (last.generated_tokens > 1) {
    to.time_per_token->Observe(seconds(now - times.first_token) /
                               static_cast<double>(last.generated_tokens - 1));
  }
}

void ServerMetrics::on_left(LeaveReason reason) {
  const char* name = reason == LeaveReason::too_slow ? "too_slow" : "gone";
  instruments_->left->Add(instruments_->with("reason", name)).Increment();
}

void ServerMetrics::on_response(int status) {
  instruments_->responses->Add(instruments_->with("status", std::to_string(status))).Increment();
}

std::string ServerMetrics::text() const {
  std::vector<prometheus::MetricFamily> families = instruments_->collector.Collect();
  for (prometheus::MetricFamily& family : instruments_->registry.Collect()) {
    families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace octet
