// Streams: what they hold, who may leave or stall, and how they end.
#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/json.h"
#include "server/server_fixture.h"

namespace octet {
namespace {

using namespace std::chrono_literals;

std::string stream_request(int tokens, const std::string& more = "") {
  return post_text("/v1/chat/completions",
                   R"({"messages":[{"role":"user","content":"he"}],"stream":true,"max_tokens":)" +
                       std::to_string(tokens) + more + "}");
}

// The data of a stream's events, chunked encoding taken off.
std::vector<std::string> events_of(const std::string& response) {
  std::string body;
  std::string_view rest = response;
  rest.remove_prefix(std::min(rest.find("\r\n\r\n"), rest.size() - 4) + 4);
  for (;;) {
    const std::size_t line = rest.find("\r\n");
    if (line == rest.npos) break;
    const std::size_t size = std::stoul(std::string(rest.substr(0, line)), nullptr, 16);
    if (size == 0) break;
    body += rest.substr(line + 2, size);
    rest.remove_prefix(line + 2 + size + 2);
  }
  std::vector<std::string> events;
  std::string_view left = body;
  for (std::size_t end; (end = left.find("\n\n")) != left.npos; left.remove_prefix(end + 2)) {
    const std::string_view block = left.substr(0, end);
    if (block.starts_with("data: ")) events.emplace_back(block.substr(6));
  }
  return events;
}

void wait_until_idle(const FakeEngine& engine) {
  for (int i = 0; i < 500 && engine.running() > 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(engine.running(), 0u);
}

TEST(Stream, HoldsAChunkForEachTokenThenUsageThenTheEnd) {
  RunningServer running;
  running.engine.cached_tokens = 3;
  RawClient client(running.port());
  client.send(stream_request(3, R"(,"stream_options":{"include_usage":true})"));
  const std::string response = client.read_until("0\r\n\r\n");
  EXPECT_NE(response.find("text/event-stream"), std::string::npos);
  const std::vector<std::string> events = events_of(response);
  ASSERT_EQ(events.size(), 5u) << response;
  const Json first = parse_json(events[0], "chunk");
  EXPECT_EQ(first["object"], "chat.completion.chunk");
  EXPECT_EQ(first["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(first["choices"][0]["delta"]["content"], "ab ");
  EXPECT_TRUE(first["choices"][0]["finish_reason"].is_null());
  EXPECT_TRUE(first["usage"].is_null());
  const Json second = parse_json(events[1], "chunk");
  EXPECT_FALSE(second["choices"][0]["delta"].contains("role"));
  EXPECT_EQ(second["id"], first["id"]);
  EXPECT_EQ(parse_json(events[2], "chunk")["choices"][0]["finish_reason"], "length");
  const Json usage = parse_json(events[3], "chunk");
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 3);
  EXPECT_EQ(usage["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
  EXPECT_EQ(usage["usage"]["total_tokens"].get<int>(),
            usage["usage"]["prompt_tokens"].get<int>() + 3);
  EXPECT_EQ(events[4], "[DONE]");
}

TEST(Stream, ToAnOldClientEndsWithTheConnection) {
  RunningServer running;
  const std::string body = R"({"prompt":"he","stream":true,"max_tokens":2})";
  RawClient client(running.port());
  client.send(
      "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  const std::string response = client.read_all();
  EXPECT_EQ(response.find("chunked"), std::string::npos);
  EXPECT_TRUE(response.ends_with("data: [DONE]\n\n")) << response;
  EXPECT_TRUE(client.closed());
}

TEST(Stream, ClientThatLeavesCancelsItsRequest) {
  RunningServer running;
  running.engine.pause(true);
  {
    // Streams and whole answers, waiting and under way; by closing and by a reset.
    std::vector<RawClient> clients;
    for (int i = 0; i < 10; ++i) {
      clients.emplace_back(running.port());
      clients.back().send(
          i % 2 == 0 ? stream_request(400)
                     : post_text("/v1/completions", R"({"prompt":"he","max_tokens":400})"));
    }
    for (int i = 0; i < 500 && running.engine.running() < 10; ++i)
      std::this_thread::sleep_for(10ms);
    ASSERT_EQ(running.engine.running(), 10u);
  }
  wait_until_idle(running.engine);
  const std::vector<AbortReason> reasons = running.engine.cancelled();
  EXPECT_EQ(std::count(reasons.begin(), reasons.end(), AbortReason::client_left), 10);
}

// Reads a stream to its last chunk; the longest time in which nothing of it came.
std::chrono::duration<double> longest_gap(RawClient& client) {
  std::chrono::duration<double> longest{0};
  auto last = std::chrono::steady_clock::now();
  while (!client.received().ends_with("0\r\n\r\n") && client.read_more()) {
    const auto now = std::chrono::steady_clock::now();
    longest = std::max(longest, std::chrono::duration<double>(now - last));
    last = now;
  }
  return longest;
}

TEST(Stream, ReaderThatTakesNothingIsCutAndOthersKeepTheirPace) {
  ServerOptions options;
  options.connection.unsent_bytes = 4 << 20;
  options.connection.stall_time = 60s;  // the bound on its bytes is what must cut it
  RunningServer running(options, 5ms);
  // 400 tokens of 64 KB each: more than the bound and the system's own buffers take; the other
  // reader's 60 are less than the bound.
  running.engine.token_text = std::string(64 << 10, 'x');
  RawClient stalled(running.port(), 4096);
  stalled.send(stream_request(400));
  for (int i = 0; i < 1000 && running.engine.running() == 0; ++i) std::this_thread::sleep_for(1ms);
  RawClient reader(running.port());
  reader.send(stream_request(60));
  // A server that waited for the one would hold up the other for the stall time.
  EXPECT_LT(longest_gap(reader).count(), 10.0);
  EXPECT_EQ(events_of(reader.received()).size(), 61u);
  for (int i = 0; i < 1000 && running.engine.cancelled().empty(); ++i) {
    std::this_thread::sleep_for(10ms);
  }
  ASSERT_EQ(running.engine.cancelled().size(), 1u);
  EXPECT_EQ(running.engine.cancelled()[0], AbortReason::reader_too_slow);
  EXPECT_EQ(running.engine.running(), 0u);
  const std::string metrics = running.ask(get_text("/metrics", "Connection: close\r\n"));
  EXPECT_NE(metrics.find("reason=\"too_slow\"} 1"), std::string::npos) << metrics;
}

TEST(Stream, ReaderThatStallsIsCutAfterATime) {
  ServerOptions options;
  options.connection.unsent_bytes = std::size_t{1} << 30;
  options.connection.stall_time = 300ms;
  RunningServer running(options, 10ms);
  running.engine.token_text = std::string(256 << 10, 'x');
  RawClient stalled(running.port(), 4096);
  stalled.send(stream_request(400));
  for (int i = 0; i < 1000; ++i) {
    std::this_thread::sleep_for(10ms);
    const std::string metrics = running.ask(get_text("/metrics", "Connection: close\r\n"));
    if (metrics.find("reason=\"too_slow\"} 1") != std::string::npos) return;
  }
  FAIL() << "the reader was not cut";
}

TEST(Stream, AThousandIdleReadersAndAClosedWindowHoldUpNobody) {
  RunningServer running({}, 5ms);
  running.engine.pause(true);
  constexpr int readers = 1000;
  std::vector<RawClient> idle;
  for (int i = 0; i < readers; ++i) {
    idle.emplace_back(running.port());
    ASSERT_TRUE(idle.back().send(stream_request(3)));
  }
  RawClient closed_window(running.port(), 4096);
  closed_window.send(stream_request(400));
  for (int i = 0; i < 2000 && running.engine.running() < readers + 1; ++i) {
    std::this_thread::sleep_for(10ms);
  }
  ASSERT_EQ(running.engine.running(), readers + 1u);
  std::vector<double> times;
  for (int i = 0; i < 50; ++i) {
    const auto start = std::chrono::steady_clock::now();
    RawClient client(running.port());
    client.send(get_text("/health"));
    ASSERT_EQ(status_of(client.read_until("ok")), 200);
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
            .count());
  }
  std::sort(times.begin(), times.end());
  EXPECT_LT(times[times.size() * 9 / 10], 100);
  running.engine.pause(false);
  for (RawClient& client : idle) {
    const std::string& response = client.read_until("0\r\n\r\n");
    EXPECT_NE(response.find("[DONE]"), std::string::npos);
  }
}

TEST(Stream, ThreeHundredAbortedStreamsThenAnAnswer) {
  RunningServer running;
  for (int i = 0; i < 300; ++i) {
    RawClient client(running.port());
    client.send(stream_request(400));
    if (i % 3 != 0) client.read_until("data: ");
  }
  wait_until_idle(running.engine);
  RawClient client(running.port());
  client.send(stream_request(2));
  EXPECT_NE(client.read_until("0\r\n\r\n").find("[DONE]"), std::string::npos);
}

TEST(Stream, DrainFinishesWhatRunsAndRefusesTheRest) {
  ServerOptions options;
  options.grace_period = 20s;
  RunningServer running(options);
  running.engine.pause(true);
  std::vector<RawClient> streams;
  for (int i = 0; i < 100; ++i) {
    streams.emplace_back(running.port());
    streams.back().send(stream_request(5));
  }
  for (int i = 0; i < 500 && running.engine.running() < 100; ++i) std::this_thread::sleep_for(10ms);
  RawClient idle(running.port());
  std::this_thread::sleep_for(50ms);
  running.server->drain();
  EXPECT_EQ(idle.read_all(5s), "");
  EXPECT_TRUE(idle.closed());
  EXPECT_EQ(status_of(running.ask(get_text("/health"))), 503);
  EXPECT_EQ(status_of(running.ask(stream_request(5))), 503);
  running.engine.pause(false);
  for (RawClient& client : streams) {
    const std::vector<std::string> events = events_of(client.read_all());
    ASSERT_EQ(events.size(), 6u);
    EXPECT_EQ(events.back(), "[DONE]");
  }
  EXPECT_TRUE(running.ended.get());
  running.ended = std::async(std::launch::deferred, [] { return true; });
}

TEST(Stream, DrainPastItsTimeEndsStreamsWithAnError) {
  ServerOptions options;
  options.grace_period = 200ms;
  RunningServer running(options, 20ms);
  std::vector<RawClient> streams;
  for (int i = 0; i < 100; ++i) {
    streams.emplace_back(running.port());
    streams.back().send(stream_request(400));
  }
  RawClient whole(running.port());
  whole.send(post_text("/v1/completions", R"({"prompt":"he","max_tokens":400})"));
  for (int i = 0; i < 500 && running.engine.running() < 101; ++i) std::this_thread::sleep_for(10ms);
  const auto start = std::chrono::steady_clock::now();
  running.server->drain();
  EXPECT_TRUE(running.ended.get());
  EXPECT_LT(std::chrono::steady_clock::now() - start, 4s);
  running.ended = std::async(std::launch::deferred, [] { return true; });
  for (RawClient& client : streams) {
    const std::string response = client.read_all();
    EXPECT_TRUE(response.ends_with("0\r\n\r\n")) << "the last chunk is not whole";
    const std::vector<std::string> events = events_of(response);
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(parse_json(events.back(), "event")["error"]["type"], "service_unavailable_error");
  }
  EXPECT_EQ(status_of(whole.read_all()), 503);
}

TEST(Stream, TimeoutEndsAnAnswer) {
  ServerOptions options;
  options.api.request_timeout = 150ms;
  RunningServer running(options, 10ms);
  RawClient client(running.port());
  client.send(post_text("/v1/completions", R"({"prompt":"he","max_tokens":400})"));
  EXPECT_EQ(status_of(client.read_until("\r\n\r\n")), 504);
  ASSERT_EQ(running.engine.cancelled().size(), 1u);
  EXPECT_EQ(running.engine.cancelled()[0], AbortReason::timed_out);
}

}  // namespace
}  // namespace octet
