// /metrics: names, labels and values as dashboards made for vLLM read them.
#include "server/metrics.h"

#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace octet {
namespace {

using namespace std::chrono_literals;

EngineStats some_stats() {
  EngineStats stats;
  stats.running = 3;
  stats.waiting = 7;
  stats.kv_usage = 0.25;
  stats.kv_arena_bytes = 4096;
  stats.kv_bytes = {{"fp8:fp8", 1024, 512}, {"bfloat16:bfloat16", 256, 0}};
  stats.prefix_queries = 1000;
  stats.prefix_hits = 640;
  stats.preemptions = 5;
  stats.prompt_tokens = 2000;
  stats.generated_tokens = 300;
  stats.finished_length = 11;
  stats.finished_cancelled = 2;
  stats.times.schedule = 0.5;
  stats.times.forward_decode = 20;
  stats.times.decode_steps = 40;
  stats.layer_writes.resize(2);
  stats.layer_writes[1].saturated = 9;
  stats.layer_writes[0].subnormal = 8;
  stats.layer_writes[1].non_finite = 7;
  return stats;
}

ServedModelFacts some_facts() {
  ServedModelFacts facts;
  facts.model_name = "small \"one\"";
  facts.cache_config = {{"cache_dtype", "fp8"}, {"block_size", "64"}};
  return facts;
}

TEST(Metrics, SayWhatTheEngineDidUnderTheNamesThatDashboardsKnow) {
  const ServerMetrics metrics(some_facts(), some_stats);
  const std::string text = metrics.text();
  const std::string labels = R"(engine="0",model_name="small \"one\"")";
  const auto expect = [&](const std::string& name, const std::string& more,
                          const std::string& value) {
    const std::string line = name + "{" + labels + more + "} " + value + "\n";
    EXPECT_NE(text.find("\n" + line), std::string::npos) << line << text;
  };
  expect("vllm:num_requests_running", "", "3");
  expect("vllm:num_requests_waiting", "", "7");
  expect("vllm:kv_cache_usage_perc", "", "0.25");
  expect("vllm:prefix_cache_queries_total", "", "1000");
  expect("vllm:prefix_cache_hits_total", "", "640");
  expect("vllm:num_preemptions_total", "", "5");
  expect("vllm:prompt_tokens_total", "", "2000");
  expect("vllm:generation_tokens_total", "", "300");
  expect("vllm:request_success_total", R"(,finished_reason="length")", "11");
  expect("vllm:request_success_total", R"(,finished_reason="abort")", "2");
  expect("vllm:cache_config_info", R"(,cache_dtype="fp8",block_size="64")", "1");
  expect("octet:kv_cache_bytes", R"(,dtype="fp8:fp8",state="in_use")", "1024");
  expect("octet:kv_cache_bytes", R"(,dtype="fp8:fp8",state="cached")", "512");
  expect("octet:kv_cache_bytes", R"(,dtype="bfloat16:bfloat16",state="in_use")", "256");
  expect("octet:kv_writes_saturated_total", R"(,layer="0")", "0");
  expect("octet:kv_writes_saturated_total", R"(,layer="1")", "9");
  expect("octet:kv_writes_subnormal_total", R"(,layer="0")", "8");
  expect("octet:kv_writes_non_finite_total", R"(,layer="1")", "7");
  expect("octet:step_seconds_total", R"(,phase="schedule")", "0.5");
  expect("octet:step_seconds_total", R"(,phase="forward_decode")", "20");
  expect("octet:steps_total", R"(,kind="decode")", "40");
}

TEST(Metrics, LatenciesBelowTenMillisecondsHaveBucketsOfAMillisecond) {
  ServerMetrics metrics(some_facts(), some_stats);
  metrics.on_token_gap(6500us);
  const std::string text = metrics.text();
  const auto bucket = [&](const std::string& bound) {
    const std::string start = "vllm:inter_token_latency_seconds_bucket{";
    for (std::size_t at = text.find(start); at != text.npos; at = text.find(start, at + 1)) {
      const std::string line = text.substr(at, text.find('\n', at) - at);
      if (line.find("le=\"" + bound + "\"") != line.npos) return line.substr(line.rfind(' ') + 1);
    }
    return std::string("no bucket");
  };
  EXPECT_EQ(bucket("0.006"), "0");
  EXPECT_EQ(bucket("0.007"), "1");
  EXPECT_EQ(bucket("0.01"), "1");
  EXPECT_EQ(bucket("+Inf"), "1");
}

// Each family is named and typed once, before its values, as the text format asks.
TEST(Metrics, EveryFamilyIsToldOnce) {
  ServerMetrics metrics(some_facts(), some_stats);
  metrics.on_response(200);
  metrics.on_left(LeaveReason::gone);
  std::istringstream lines(metrics.text());
  std::set<std::string> families;
  std::string family;
  std::size_t values = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(families.insert(family).second) << family << " twice";
    } else if (!line.starts_with("#")) {
      EXPECT_TRUE(line.starts_with(family)) << line;
      ++values;
    }
  }
  EXPECT_GT(families.size(), 30u);
  EXPECT_GT(values, 200u);
}

}  // namespace
}  // namespace octet
