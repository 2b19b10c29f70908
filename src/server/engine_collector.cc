#include "server/engine_collector.h"

#include <string>
#include <utility>

namespace octet {

namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<std::pair<std::string, std::string>>;

class Families {
 public:
  explicit Families(const std::string& model) : common_{{"engine", "0"}, {"model_name", model}} {}

  void begin(MetricType type, const char* name, const char* help) {
    MetricFamily family;
    family.name = name;
    family.help = help;
    family.type = type;
    families_.push_back(std::move(family));
  }
  void add(double value, const Labels& labels = {}) {
    ClientMetric metric;
    for (const Labels* list : {static_cast<const Labels*>(&common_), &labels}) {
      for (const auto& [name, text] : *list) metric.label.push_back({name, text});
    }
    metric.gauge.value = value;
    metric.counter.value = value;
    families_.back().metric.push_back(std::move(metric));
  }
  template <typename T>
  void gauge(const char* name, const char* help, T value) {
    begin(MetricType::Gauge, name, help);
    add(static_cast<double>(value));
  }
  template <typename T>
  void counter(const char* name, const char* help, T value) {
    begin(MetricType::Counter, name, help);
    add(static_cast<double>(value));
  }
  std::vector<MetricFamily> take() { return std::move(families_); }

 private:
  Labels common_;
  std::vector<MetricFamily> families_;
};

void add_requests(Families& to, const EngineStats& stats) {
  to.gauge("vllm:num_requests_running", "Requests in the running batch.", stats.running);
  to.gauge("vllm:num_requests_waiting", "Requests that wait to be scheduled.", stats.waiting);
  to.counter("vllm:num_preemptions_total", "Requests that gave their pages back for others.",
             stats.preemptions);
  to.counter("vllm:prompt_tokens_total", "Tokens of prompts, cached ones among them.",
             stats.prompt_tokens);
  to.counter("vllm:prompt_tokens_cached_total", "Tokens of prompts that were found in the cache.",
             stats.prefix_hits);
  to.counter("vllm:generation_tokens_total", "Tokens of answers.", stats.generated_tokens);
  to.begin(MetricType::Counter, "vllm:request_success_total", "Requests by how they ended.");
  to.add(static_cast<double>(stats.finished_stop), {{"finished_reason", "stop"}});
  to.add(static_cast<double>(stats.finished_length), {{"finished_reason", "length"}});
  to.add(static_cast<double>(stats.finished_cancelled), {{"finished_reason", "abort"}});
  to.add(static_cast<double>(stats.finished_error), {{"finished_reason", "error"}});
}

void add_cache(Families& to, const EngineStats& stats, const ServedModelFacts& facts) {
  to.gauge("vllm:kv_cache_usage_perc", "Share of the KV cache that requests hold, 0 to 1.",
           stats.kv_usage);
  to.counter("vllm:prefix_cache_queries_total", "Prompt tokens that were looked for in the cache.",
             stats.prefix_queries);
  to.counter("vllm:prefix_cache_hits_total", "Prompt tokens that were found in the cache.",
             stats.prefix_hits);
  to.begin(MetricType::Gauge, "vllm:cache_config_info", "The KV cache's configuration.");
  to.add(1, facts.cache_config);
  to.gauge("octet:kv_cache_arena_bytes", "Bytes of the KV cache's arena.", stats.kv_arena_bytes);
  to.begin(MetricType::Gauge, "octet:kv_cache_bytes",
           "Bytes of KV cache pages by format (keys:values): in_use by requests, cached for later "
           "prompts.");
  for (const KvFormatBytes& format : stats.kv_bytes) {
    to.add(static_cast<double>(format.in_use), {{"dtype", format.format}, {"state", "in_use"}});
    to.add(static_cast<double>(format.cached), {{"dtype", format.format}, {"state", "cached"}});
  }
}

void add_by_layer(Families& to, const EngineStats& stats, std::int64_t KvWriteCounts::*count) {
  for (std::size_t layer = 0; layer < stats.layer_writes.size(); ++layer) {
    to.add(static_cast<double>(stats.layer_writes[layer].*count),
           {{"layer", std::to_string(layer)}});
  }
}

void add_engine(Families& to, const EngineStats& stats) {
  to.counter("octet:computed_rows_total", "Rows that the model ran, work done again among them.",
             stats.computed_rows);
  to.begin(MetricType::Counter, "octet:step_seconds_total", "Time of the engine's steps by phase.");
  const StepTimes& times = stats.times;
  for (const auto& [phase, value] :
       {std::pair{"schedule", times.schedule}, std::pair{"forward_prefill", times.forward_prefill},
        std::pair{"forward_decode", times.forward_decode}, std::pair{"sample", times.sample},
        std::pair{"deliver", times.deliver}}) {
    to.add(value, {{"phase", phase}});
  }
  to.begin(MetricType::Counter, "octet:steps_total", "The engine's steps by kind.");
  to.add(static_cast<double>(times.prefill_steps), {{"kind", "prefill"}});
  to.add(static_cast<double>(times.decode_steps), {{"kind", "decode"}});
  to.gauge("octet:seconds_since_progress", "Time since the last step's end; 0 where idle.",
           stats.seconds_since_progress);
  to.gauge("octet:healthy", "1 while the engine can go on.", stats.healthy ? 1 : 0);
  to.gauge("octet:draining", "1 while the server shuts down.", stats.draining ? 1 : 0);
  to.begin(MetricType::Counter, "octet:kv_writes_saturated_total",
           "Elements beyond the cache format's range, stored as its largest, by layer.");
  add_by_layer(to, stats, &KvWriteCounts::saturated);
  to.begin(MetricType::Counter, "octet:kv_writes_subnormal_total",
           "Elements so small that the cache's format kept fewer bits or none, by layer.");
  add_by_layer(to, stats, &KvWriteCounts::subnormal);
  to.begin(MetricType::Counter, "octet:kv_writes_non_finite_total",
           "Elements that were NaN or infinite, by layer.");
  add_by_layer(to, stats, &KvWriteCounts::non_finite);
}

}  // namespace

std::vector<MetricFamily> EngineCollector::Collect() const {
  const EngineStats stats = stats_();
  Families families(facts_.model_name);
  add_requests(families, stats);
  add_cache(families, stats, facts_);
  add_engine(families, stats);
  return families.take();
}

}  // namespace octet
