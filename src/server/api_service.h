// OpenAI's API, and what else the server answers: routes, keys, origins, and who does what.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "server/api_options.h"
#include "server/asio.h"
#include "server/engine_client.h"
#include "server/generation.h"
#include "server/http_message.h"
#include "server/metrics.h"
#include "server/model_text.h"
#include "server/worker.h"

namespace octet {

// For the I/O thread, which runs `io`. All that it is given outlives it.
class ApiService : public HttpService {
 public:
  ApiService(asio::io_context& io, EngineClient& engine, const ModelText& text,
             ServerMetrics& metrics, ApiOptions options);
  ~ApiService() override;

  std::optional<HttpResponse> refuse(const HttpRequest& head) override;
  void handle(std::shared_ptr<HttpExchange> exchange, HttpRequest request) override;
  HttpResponse protocol_error(int status, std::string_view message) override;

  // From here on /health says 503, and new work is refused.
  void begin_drain() { draining_ = true; }
  // Requests for text that are not over: being prepared, waiting or being answered.
  std::size_t unfinished() const { return preparing_ + generations_.size(); }

  // To be called every few seconds: tells silent streams' readers that they are alive.
  void keep_streams_alive();

 private:
  using Prepare = PreparedGeneration (*)(std::string_view, const ModelText&, const ApiOptions&);
  using Answer = std::string (*)(std::string_view, const ModelText&, const ApiOptions&);
  struct Route {
    const char* method;
    const char* path;
    bool needs_key;
    void (ApiService::*answer)(std::shared_ptr<HttpExchange>, HttpRequest);
  };
  static const Route routes[];

  const Route* find_route(const HttpRequest& request, std::string* allowed) const;
  bool has_key(const HttpRequest& request) const;
  bool allows_origin(const std::string& origin) const;
  void add_headers(const std::string& origin, HttpResponse* response) const;
  HttpResponse finished(const HttpRequest& head, HttpResponse response);
  HttpResponse preflight() const;

  void get_health(std::shared_ptr<HttpExchange> exchange, HttpRequest request);
  void get_version(std::shared_ptr<HttpExchange> exchange, HttpRequest request);
  void get_metrics(std::shared_ptr<HttpExchange> exchange, HttpRequest request);
  void get_models(std::shared_ptr<HttpExchange> exchange, HttpRequest request);
  void get_model(std::shared_ptr<HttpExchange> exchange, HttpRequest request);
  void get_openapi(std::shared_ptr<HttpExchange> exchange, HttpRequest request);
  void get_page(std::shared_ptr<HttpExchange> exchange, HttpRequest request);
  void post_completions(std::shared_ptr<HttpExchange> exchange, HttpRequest request);
  void post_chat(std::shared_ptr<HttpExchange> exchange, HttpRequest request);
  void post_tokenize(std::shared_ptr<HttpExchange> exchange, HttpRequest request);
  void post_detokenize(std::shared_ptr<HttpExchange> exchange, HttpRequest request);

  void generate(std::shared_ptr<HttpExchange> exchange, std::string body, Prepare prepare);
  void start(std::shared_ptr<HttpExchange> exchange, PreparedGeneration prepared);
  void answer_text(std::shared_ptr<HttpExchange> exchange, std::string body, Answer answer);

  class AnnotatedExchange;

  asio::io_context* io_;
  EngineClient* engine_;
  const ModelText* text_;
  ServerMetrics* metrics_;
  ApiOptions options_;
  std::string openapi_;
  GenerationContext context_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Generation>> generations_;
  std::uint64_t next_key_ = 1;
  std::size_t preparing_ = 0;
  bool draining_ = false;
  Worker worker_;  // last, so that its jobs end before what they use
};

}  // namespace octet
