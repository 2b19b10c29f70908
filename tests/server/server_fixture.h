// A server on a free port of the loopback, with a fake engine and the tokenizer of a small model.
#pragma once

#include <future>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "files/gguf.h"
#include "server/fake_engine.h"
#include "server/raw_client.h"
#include "server/server.h"
#include "support/test_models.h"

namespace octet {
inline namespace test_support {

struct RunningServer {
  explicit RunningServer(ServerOptions options = {},
                         std::chrono::milliseconds tick = std::chrono::milliseconds(1))
      : engine(tick) {
    const auto file = GgufFile::open(data_path("models/llama_mixed.gguf"));
    const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::from_gguf(*file);
    constexpr std::int64_t context = 512;
    text = std::make_unique<ModelText>(
        tokenizer, std::string(*file->find_string("tokenizer.chat_template")), context);
    options.port = 0;
    options.handle_signals = false;
    options.api.model_names = {"small", "alias"};
    options.api.version = "1.2.3";
    options.api.limits.max_model_len = context;
    options.api.limits.vocabulary_size = tokenizer->vocabulary_size();
    options.api.limits.max_json_bytes = options.connection.body_bytes;
    options.facts.model_name = "small";
    options.facts.max_model_len = context;
    options.facts.cache_config = {{"cache_dtype", "fp8"}};
    server = std::make_unique<Server>(std::move(options), engine, *text);
    ended = std::async(std::launch::async, [this] { return server->run(); });
  }
  ~RunningServer() {
    engine.pause(false);
    server->drain();
    ended.wait();
  }

  std::uint16_t port() const { return server->port(); }
  // What the server sends to a client that sends these bytes, until the server closes: the request
  // must ask for that (Connection: close) or break a rule.
  std::string ask(std::string_view bytes) const {
    RawClient client(port());
    client.send(bytes);
    return client.read_all();
  }

  FakeEngine engine;
  std::unique_ptr<ModelText> text;
  std::unique_ptr<Server> server;
  std::future<bool> ended;
};

inline std::string body_of(const std::string& response) {
  const std::size_t start = response.find("\r\n\r\n");
  return start == std::string::npos ? std::string() : response.substr(start + 4);
}

}  // namespace test_support
}  // namespace octet
