// The arithmetic of `octet bench serve`, on a load whose figures are known.
#include "bench/serve_report.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bench/event_stream.h"
#include "bench/serve_prompt.h"
#include "core/json.h"

namespace octet {
namespace {

// Two requests of three tokens each, one slower than the other, and one that failed.
ServeResult known_result() {
  ServeRecord fast;
  fast.completed = true;
  fast.input_tokens = 10;
  fast.output_tokens = 3;
  fast.first_token = 0.1;
  fast.latency = 0.3;
  fast.gaps = {0.05, 0.15};
  fast.times = {0.1, 0.15, 0.3};
  ServeRecord slow = fast;
  slow.first_token = 0.3;
  slow.latency = 1.3;
  slow.gaps = {0.25, 0.75};
  slow.times = {0.8, 1.05, 1.8};
  ServeRecord failed;
  failed.error = "status 429: busy";
  ServeResult result;
  result.model = "small";
  result.duration = 2;
  result.most_at_once = 2;
  result.records = {fast, slow, failed};
  return result;
}

TEST(ServeReport, FiguresAreThoseOfTheDefinitions) {
  ServeReportOptions options;
  options.metrics = {"ttft", "tpot", "itl", "e2el"};
  options.percentiles = {50, 99.9};
  options.goals = {{"ttft", 200}, {"e2el", 1000}};
  options.detailed = true;
  ServeLoad load;
  load.prompts = 3;
  load.max_concurrency = 2;
  const Json json = parse_json(serve_report_json(load, known_result(), options), "report");
  EXPECT_EQ(json["completed"], 2);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["model_id"], "small");
  EXPECT_EQ(json["total_input_tokens"], 20);
  EXPECT_EQ(json["total_output_tokens"], 6);
  EXPECT_EQ(json["request_rate"], "inf");
  EXPECT_EQ(json["max_concurrency"], 2);
  EXPECT_DOUBLE_EQ(json["request_throughput"].get<double>(), 1.0);
  EXPECT_DOUBLE_EQ(json["request_goodput"].get<double>(), 0.5);
  EXPECT_DOUBLE_EQ(json["output_throughput"].get<double>(), 3.0);
  EXPECT_DOUBLE_EQ(json["total_token_throughput"].get<double>(), 13.0);
  EXPECT_DOUBLE_EQ(json["max_output_tokens_per_s"].get<double>(), 4.0);
  EXPECT_DOUBLE_EQ(json["mean_ttft_ms"].get<double>(), 200);
  EXPECT_DOUBLE_EQ(json["median_ttft_ms"].get<double>(), 200);
  EXPECT_DOUBLE_EQ(json["std_ttft_ms"].get<double>(), 100);
  // (latency - first token) / 2: 100 and 500 ms.
  EXPECT_DOUBLE_EQ(json["mean_tpot_ms"].get<double>(), 300);
  // 50, 150, 250, 750.
  EXPECT_DOUBLE_EQ(json["mean_itl_ms"].get<double>(), 300);
  EXPECT_DOUBLE_EQ(json["p50_itl_ms"].get<double>(), 200);
  EXPECT_NEAR(json["p99.9_itl_ms"].get<double>(), 748.5, 1e-9);
  EXPECT_DOUBLE_EQ(json["mean_e2el_ms"].get<double>(), 800);
  EXPECT_EQ(json["output_lens"], Json::array({3, 3, 0}));
  EXPECT_EQ(json["errors"][2], "status 429: busy");
}

TEST(ServeReport, TableHasTheRowsThatToolsLookFor) {
  const std::string text = serve_report_text(ServeLoad(), known_result(), ServeReportOptions());
  for (const char* row : {"============ Serving Benchmark Result ============\n",
                          "Successful requests:                     2         \n",
                          "Failed requests:                         1         \n",
                          "Request throughput (req/s):              1.00      \n",
                          "---------------Time to First Token----------------\n",
                          "Mean TTFT (ms):                          200.00    \n",
                          "-----Time per Output Token (excl. 1st token)------\n",
                          "---------------Inter-token Latency----------------\n",
                          "P99 ITL (ms):                            735.00    \n"}) {
    EXPECT_NE(text.find(row), std::string::npos) << row << text;
  }
}

TEST(EventStream, EventsMayComeInAnyPieces) {
  const std::string stream =
      ": hello\n\ndata: {\"a\":1}\n\ndata:{\"b\":2}\r\n\r\nevent: x\ndata: [DONE]\n\n";
  for (std::size_t size = 1; size <= stream.size(); ++size) {
    EventStream events;
    std::vector<std::string> seen;
    for (std::size_t at = 0; at < stream.size(); at += size) {
      events.push(std::string_view(stream).substr(at, size),
                  [&](std::string_view data) { seen.emplace_back(data); });
    }
    EXPECT_EQ(seen, (std::vector<std::string>{"{\"a\":1}", "{\"b\":2}", "[DONE]"})) << size;
  }
}

TEST(ServePrompt, LengthsStayInTheirRange) {
  std::mt19937_64 random(1);
  std::int64_t low = 1000;
  std::int64_t high = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::int64_t length = random_length(random, 100, 0.25);
    low = std::min(low, length);
    high = std::max(high, length);
  }
  EXPECT_EQ(low, 75);
  EXPECT_EQ(high, 125);
  EXPECT_EQ(random_length(random, 128, 0), 128);
  const std::string prompt = random_prompt(random, 50);
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), ' '), 49);
}

}  // namespace
}  // namespace octet
