// HTTP as clients, good and bad, use it, against a server on the loopback with a fake engine.
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "server/server_fixture.h"

namespace octet {
namespace {

using namespace std::chrono_literals;

const std::string close_line = "Connection: close\r\n";
const std::string short_completion = R"({"prompt":"he","max_tokens":2})";

TEST(Protocol, AnswersSmallRequests) {
  RunningServer running;
  const std::string health = running.ask(get_text("/health", close_line));
  EXPECT_EQ(status_of(health), 200) << health;
  EXPECT_EQ(body_of(health), R"({"status":"ok"})");
  EXPECT_EQ(body_of(running.ask(get_text("/version", close_line))), R"({"version":"1.2.3"})");
  const Json models =
      parse_json(body_of(running.ask(get_text("/v1/models", close_line))), "models");
  EXPECT_EQ(models["data"][0]["id"], "small");
  EXPECT_EQ(models["data"][1]["id"], "alias");
  EXPECT_EQ(models["data"][0]["max_model_len"], 512);
  const std::string head =
      running.ask("HEAD /health HTTP/1.1\r\nHost: x\r\n" + close_line + "\r\n");
  EXPECT_EQ(status_of(head), 200);
  EXPECT_NE(head.find("Content-Length: 15"), std::string::npos) << head;
  EXPECT_EQ(body_of(head), "");
}

TEST(Protocol, NamesWhatIsNotThere) {
  RunningServer running;
  EXPECT_EQ(status_of(running.ask(get_text("/v2/nothing", close_line))), 404);
  const std::string wrong_method = running.ask(get_text("/v1/completions", close_line));
  EXPECT_EQ(status_of(wrong_method), 405);
  EXPECT_NE(wrong_method.find("Allow: POST"), std::string::npos);
  EXPECT_EQ(status_of(running.ask("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
                                  "text/plain\r\nContent-Length: 2\r\n\r\n{}")),
            415);
  const std::string packed = running.ask(
      post_text("/v1/completions", short_completion, "Content-Encoding: gzip\r\n" + close_line));
  EXPECT_EQ(status_of(packed), 415);
  EXPECT_NE(packed.find("gzip"), std::string::npos) << packed;
  EXPECT_EQ(status_of(running.ask(post_text("/v1/completions", short_completion,
                                            "Content-Encoding: identity\r\n" + close_line))),
            200);
}

TEST(Protocol, ConnectionIsKeptAndPipelinedRequestsAreAnsweredInOrder) {
  RunningServer running;
  RawClient client(running.port());
  client.send(get_text("/version") + post_text("/v1/completions", short_completion) +
              get_text("/health") + get_text("/version", close_line));
  const std::string all = client.read_all();
  const std::size_t completion = all.find("text_completion");
  const std::size_t health = all.find(R"({"status":"ok"})");
  EXPECT_LT(all.find("1.2.3"), completion);
  EXPECT_LT(completion, health);
  EXPECT_LT(health, all.rfind("1.2.3"));
  EXPECT_TRUE(client.closed());
}

TEST(Protocol, PartsOfARequestMayComeOneByteAtATime) {
  RunningServer running;
  RawClient client(running.port());
  for (const char byte : post_text("/v1/completions", short_completion, close_line)) {
    ASSERT_TRUE(client.send(std::string(1, byte)));
  }
  EXPECT_EQ(status_of(client.read_all()), 200);
}

TEST(Protocol, ChunkedBodiesAreRead) {
  RunningServer running;
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n" +
      close_line + "\r\n";
  const std::string response = running.ask(
      head + "5;name=value\r\n{\"pro\r\n19\r\nmpt\":\"he\",\"max_tokens\":2}\r\n0\r\n\r\n");
  EXPECT_EQ(status_of(response), 200) << response;
  EXPECT_NE(response.find("\"text\":\"ab ab \""), std::string::npos) << response;
}

TEST(Protocol, ClientThatAsksFirstIsToldToGoOn) {
  RunningServer running;
  RawClient client(running.port());
  const std::string whole =
      post_text("/v1/completions", short_completion, "Expect: 100-continue\r\n" + close_line);
  const std::size_t body = whole.find("\r\n\r\n") + 4;
  client.send(whole.substr(0, body));
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.forget();
  client.send(whole.substr(body));
  EXPECT_EQ(status_of(client.read_all()), 200);
}

// Pairs of lengths that two readers may take differently.
TEST(Protocol, SmugglingIsRefusedAndTheConnectionEnds) {
  RunningServer running;
  const std::string start =
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
  const std::string inner = "GET /version HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::vector<std::string> attempts = {
      start + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
      start + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + inner,
      start + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}" + inner,
      start + "Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}" + inner,
      start + "Content-Length: 2, 2\r\n\r\n{}" + inner,
      start + "Content-Length: +2\r\n\r\n{}" + inner,
      start + "Content-Length: -2\r\n\r\n{}" + inner,
      start + "Content-Length: 0x2\r\n\r\n{}" + inner,
      start + "Content-Length: 99999999999999999999999\r\n\r\n{}" + inner,
      start + "Content-Length : 2\r\n\r\n{}" + inner,
      start + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + inner,
      start + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + inner,
      start + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner,
      start + "Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n" + inner,
      start + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n" + inner,
      start + "Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n" + inner,
      start + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n{}\r\n0\r\n\r\n" + inner,
      start + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx0\r\n\r\n" + inner,
      "POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
      "GET /version HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n" + inner,
      "GET /version HTTP/1.1\r\n\r\n" + inner,
      "GET /version HTTP/1.1\r\nHost: x\r\nA: 1\r\n folded: 2\r\nContent-Length : 0\r\n\r\n" +
          inner,
      "GET  /version HTTP/1.1\r\nHost: x\r\n\r\n" + inner,
      "GET /version HTTP/2.0\r\nHost: x\r\n\r\n" + inner,
      "GET http://other/version HTTP/1.1\r\nHost: x\r\n\r\n" + inner,
      "GET /version\x01 HTTP/1.1\r\nHost: x\r\n\r\n" + inner,
      std::string("GET /version HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n", 40) + inner,
      "\x16\x03\x01\x02\x01\x01\xfc\x03\x03" + inner,
  };
  for (const std::string& attempt : attempts) {
    const std::string response = running.ask(attempt);
    EXPECT_GE(status_of(response), 400) << attempt << "\n" << response;
    EXPECT_LT(status_of(response), 600) << attempt;
    EXPECT_NE(response.find("Connection: close"), std::string::npos) << attempt;
    EXPECT_EQ(response.find("1.2.3"), std::string::npos) << attempt << "\n" << response;
    EXPECT_EQ(response.rfind("HTTP/1.1"), 0u) << "a second response to " << attempt;
  }
  EXPECT_TRUE(running.engine.seen().empty());
}

TEST(Protocol, LimitsOfTheHead) {
  RunningServer running;
  EXPECT_EQ(
      status_of(running.ask("GET /" + std::string(5000, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n")),
      414);
  EXPECT_EQ(status_of(running.ask(get_text("/health", "A: " + std::string(20'000, 'b') + "\r\n"))),
            431);
  std::string many;
  for (int i = 0; i < 200; ++i) many += fmt::format("A{}: b\r\n", i);
  EXPECT_EQ(status_of(running.ask(get_text("/health", many))), 431);
  // A head without an end is refused at its limit, not read on.
  RawClient client(running.port());
  client.send("GET /health HTTP/1.1\r\n");
  for (int i = 0; i < 1000 && client.send("B: " + std::string(1000, 'c') + "\r\n"); ++i) {
  }
  client.read_all();
  EXPECT_TRUE(client.closed());
}

TEST(Protocol, LimitsOfTheBody) {
  ServerOptions options;
  options.connection.body_bytes = 1 << 20;
  RunningServer running(options);
  const std::string start =
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
  // Told ahead: refused before a byte of it is sent.
  EXPECT_EQ(status_of(running.ask(start + "Content-Length: 104857600\r\n\r\n")), 413);
  // Not told: refused once it is too long, whatever was still to come.
  RawClient client(running.port());
  client.send(start + "Transfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "10000\r\n" + std::string(0x10000, ' ') + "\r\n";
  int sent = 0;
  while (sent < 1600 && client.send(chunk)) ++sent;
  EXPECT_LT(sent, 200) << "chunks of 64 KB were taken past the limit of 1 MB";
  // The refusal is there to read, unless the client's own flood reset the connection first.
  const std::string response = client.read_all();
  if (!response.empty()) {
    EXPECT_EQ(status_of(response), 413);
  }
  // One chunk that says it is too long needs no reading.
  EXPECT_EQ(status_of(running.ask(start + "Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n")), 413);
  // A chunk's line without an end.
  RawClient endless(running.port());
  endless.send(start + "Transfer-Encoding: chunked\r\n\r\n5;");
  for (int i = 0; i < 1000 && endless.send(std::string(1000, 'e')); ++i) {
  }
  endless.read_all();
  EXPECT_TRUE(endless.closed());
}

TEST(Protocol, AllBodiesTogetherAreLimited) {
  ServerOptions options;
  options.connection.body_bytes = 1 << 20;
  options.connection.all_body_bytes = 3 << 20;
  RunningServer running(options);
  std::vector<RawClient> clients;
  const std::string start =
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
      "Content-Length: 1000000\r\n\r\n";
  for (int i = 0; i < 5; ++i) {
    clients.emplace_back(running.port());
    clients.back().send(start + std::string(900'000, ' '));
  }
  int refused = 0;
  for (RawClient& client : clients) {
    if (status_of(client.read_until("\r\n\r\n", 300ms)) == 503) ++refused;
  }
  EXPECT_EQ(refused, 2);
  clients.clear();
  // What left is given back.
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(status_of(running.ask(post_text("/v1/completions", short_completion, close_line))),
            200);
}

TEST(Protocol, SlowClientsAreCutAndHoldUpNobody) {
  ServerOptions options;
  options.connection.header_time = 200ms;
  options.connection.body_pause = 200ms;
  options.connection.idle_time = 300ms;
  RunningServer running(options);
  std::vector<RawClient> slow;
  for (int i = 0; i < 50; ++i) {
    slow.emplace_back(running.port());
    slow.back().send(i % 2 == 0 ? "GET /health HT"
                                : post_text("/v1/completions", "{ ").substr(0, 94));
  }
  RawClient idle(running.port());
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(status_of(running.ask(get_text("/health", close_line))), 200);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
  for (RawClient& client : slow) {
    const std::string response = client.read_all(5s);
    EXPECT_EQ(status_of(response), 408) << response;
    EXPECT_TRUE(client.closed());
  }
  EXPECT_EQ(idle.read_all(5s), "");
  EXPECT_TRUE(idle.closed());
}

TEST(Protocol, KeysAreAskedFor) {
  ServerOptions options;
  options.api.api_keys = {"secret-one", "secret-two"};
  RunningServer running(options);
  const auto status = [&](const std::string& authorization) {
    return status_of(running.ask(
        get_text("/v1/models", authorization.empty()
                                   ? close_line
                                   : close_line + "Authorization: " + authorization + "\r\n")));
  };
  EXPECT_EQ(status("Bearer secret-one"), 200);
  EXPECT_EQ(status("Bearer secret-two"), 200);
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer secret-on", "Bearer secret-one1",
                            "Bearer secret-onf", "Basic secret-one", "secret-one"}) {
    EXPECT_EQ(status(wrong), 401) << wrong;
  }
  EXPECT_EQ(status_of(running.ask(get_text("/health", close_line))), 200);
  // Refused before the body is read: the connection cannot go on.
  const std::string response = running.ask(post_text("/v1/completions", short_completion));
  EXPECT_EQ(status_of(response), 401);
  EXPECT_NE(response.find("Connection: close"), std::string::npos);
}

TEST(Protocol, OriginsThatAreNotListedGetNoPermission) {
  ServerOptions options;
  options.api.allowed_origins = {"https://chat.example"};
  RunningServer running(options);
  const auto ask = [&](const std::string& origin) {
    return running.ask("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\nOrigin: " + origin +
                       "\r\nAccess-Control-Request-Method: POST\r\n" + close_line + "\r\n");
  };
  const std::string allowed = ask("https://chat.example");
  EXPECT_EQ(status_of(allowed), 204) << allowed;
  EXPECT_NE(allowed.find("Access-Control-Allow-Origin: https://chat.example"), std::string::npos);
  const std::string other = ask("https://evil.example");
  EXPECT_NE(status_of(other), 204);
  EXPECT_EQ(other.find("Access-Control-Allow-Origin"), std::string::npos);
}

TEST(Protocol, HealthTellsOfAnEngineThatFailedOrIsStuck) {
  ServerOptions options;
  options.api.stuck_after = 10s;
  RunningServer running(options);
  running.engine.set_since_progress(9.5);
  EXPECT_EQ(status_of(running.ask(get_text("/health", close_line))), 200);
  running.engine.set_since_progress(10.5);
  EXPECT_EQ(status_of(running.ask(get_text("/health", close_line))), 503);
  running.engine.set_since_progress(0);
  running.engine.set_unhealthy("the device is lost");
  const std::string health = running.ask(get_text("/health", close_line));
  EXPECT_EQ(status_of(health), 503);
  EXPECT_NE(health.find("the device is lost"), std::string::npos);
  EXPECT_EQ(status_of(running.ask(post_text("/v1/completions", short_completion, close_line))),
            503);
}

// It says so first, and ends by itself with a status that is not clean.
TEST(Protocol, ADeviceThatFailedEndsTheServer) {
  RunningServer running;
  running.engine.fail_device("the GPU fell off the bus");
  const std::string health = running.ask(get_text("/health", close_line));
  EXPECT_EQ(status_of(health), 503);
  EXPECT_NE(health.find("fell off the bus"), std::string::npos);
  ASSERT_EQ(running.ended.wait_for(30s), std::future_status::ready);
  EXPECT_FALSE(running.ended.get());
  // What the fixture waits for at its end.
  running.ended = std::async(std::launch::deferred, [] { return false; });
}

TEST(Protocol, FullQueueIsTold) {
  RunningServer running;
  running.engine.most_requests = 0;
  const std::string response =
      running.ask(post_text("/v1/completions", short_completion, close_line));
  EXPECT_EQ(status_of(response), 429);
  EXPECT_NE(response.find("Retry-After: "), std::string::npos);
  const Json body = parse_json(body_of(response), "response");
  EXPECT_EQ(body["error"]["type"], "rate_limit_error");
}

TEST(Protocol, PageIsServedWithAPolicyThatAllowsNothingElse) {
  RunningServer running;
  const std::string page = running.ask(get_text("/", close_line));
  EXPECT_EQ(status_of(page), 200);
  EXPECT_NE(page.find("Content-Security-Policy: default-src 'none'"), std::string::npos);
  EXPECT_NE(page.find("text/html"), std::string::npos);
  EXPECT_NE(page.find("/page.js"), std::string::npos);
  EXPECT_EQ(page.find("http://"), std::string::npos);
  EXPECT_EQ(page.find("https://"), std::string::npos);
  const std::string script = running.ask(get_text("/page.js", close_line));
  EXPECT_NE(script.find("text/javascript"), std::string::npos);
  EXPECT_EQ(script.find("innerHTML"), std::string::npos);
  EXPECT_EQ(status_of(running.ask(get_text("/page.css", close_line))), 200);
}

}  // namespace
}  // namespace octet
