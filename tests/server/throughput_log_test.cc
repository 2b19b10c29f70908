// The line that tells every 10 s what a server does, in vLLM's words.
#include "server/throughput_log.h"

#include <gtest/gtest.h>

namespace octet {
namespace {

using namespace std::chrono_literals;

TEST(ThroughputLog, TellsOfTheTimeSinceTheLastLine) {
  ThroughputLog log;
  EngineStats stats;
  stats.prompt_tokens = 1000;
  stats.generated_tokens = 50;
  stats.running = 3;
  stats.waiting = 2;
  stats.kv_usage = 0.125;
  stats.prefix_queries = 1000;
  stats.prefix_hits = 640;
  EXPECT_EQ(log.line(stats, 10s),
            "Avg prompt throughput: 100.0 tokens/s, Avg generation throughput: 5.0 tokens/s, "
            "Running: 3 reqs, Waiting: 2 reqs, GPU KV cache usage: 12.5%, Prefix cache hit rate: "
            "64.0%");
  stats.generated_tokens = 450;
  EXPECT_EQ(
      log.line(stats, 5s).substr(0, 86),
      "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 80.0 tokens/s, Running");
}

TEST(ThroughputLog, SaysNothingWhereNothingHappens) {
  ThroughputLog log;
  EngineStats stats;
  EXPECT_EQ(log.line(stats, 10s), "");
  stats.computed_rows = 128;  // of a prompt that is not at its end
  EXPECT_NE(log.line(stats, 10s), "");
  EXPECT_EQ(log.line(stats, 10s), "");
  stats.waiting = 1;  // nobody runs, and somebody waits: that is worth a line each time
  EXPECT_NE(log.line(stats, 10s), "");
  EXPECT_NE(log.line(stats, 10s), "");
}

}  // namespace
}  // namespace octet
