#include "server/api_service.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <malloc.h>

#include "core/error.h"
#include "core/json.h"
#include "core/printable.h"
#include "server/api_error.h"
#include "server/log.h"
#include "server/openapi.h"
#include "server/page_assets.h"
#include "server/prepare.h"

namespace octet {

namespace {

// One may tokenize a long prompt while the other serves short ones.
constexpr int worker_threads = 2;
constexpr std::chrono::seconds most_silence{15};
constexpr std::string_view model_path = "/v1/models/";

// A body of megabytes takes ten times its size while it is parsed, in small pieces that the
// allocator would keep for good: 16 MB bodies left 200 MB. The system gets them back.
void forget(std::string* body) {
  constexpr std::size_t large = std::size_t{1} << 20;
  const bool was_large = body->size() >= large;
  std::string().swap(*body);
  if (was_large) malloc_trim(0);
}

// Takes as long for a wrong key as for the right one, wherever they differ.
bool same_secret(std::string_view given, std::string_view secret) {
  volatile unsigned difference = given.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto expected =
        static_cast<unsigned char>(secret.empty() ? 0 : secret[i % secret.size()]);
    difference = difference | (static_cast<unsigned char>(given[i]) ^ expected);
  }
  return difference == 0;
}

bool is_json(std::string_view content_type) {
  content_type = content_type.substr(0, content_type.find(';'));
  while (!content_type.empty() && content_type.back() == ' ') content_type.remove_suffix(1);
  constexpr std::string_view json = "application/json";
  return std::equal(content_type.begin(), content_type.end(), json.begin(), json.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; });
}

HttpResponse json_response(std::string body) {
  HttpResponse response;
  response.body = std::move(body);
  return response;
}

// What a job came to: its result, or what its client is told.
template <typename T>
using Outcome = std::variant<T, ApiError>;

template <typename T, typename Job>
Outcome<T> outcome_of(Job&& job) {
  try {
    return job();
  } catch (const ApiError& error) {
    return error;
  } catch (const Error& error) {
    return to_api_error(error);
  } catch (const std::bad_alloc&) {
    return ApiError(503, "the server is out of memory; try again later");
  } catch (const std::exception& error) {
    log_error(fmt::format("a request failed: {}", single_line(error.what())));
    return ApiError(500, "internal error");
  }
}

}  // namespace

// Adds the headers that every response has, and counts it.
class ApiService::AnnotatedExchange : public HttpExchange {
 public:
  AnnotatedExchange(const ApiService& service, std::shared_ptr<HttpExchange> inner,
                    std::string origin)
      : service_(&service), inner_(std::move(inner)), origin_(std::move(origin)) {}

  void body_understood() override { inner_->body_understood(); }
  void respond(HttpResponse response) override {
    annotate(&response);
    inner_->respond(std::move(response));
  }
  void begin_stream(HttpResponse head) override {
    annotate(&head);
    inner_->begin_stream(std::move(head));
  }
  void write(std::string_view part) override { inner_->write(part); }
  void end_stream() override { inner_->end_stream(); }
  void on_leave(std::function<void(LeaveReason)> leave) override {
    inner_->on_leave(std::move(leave));
  }
  bool left() const override { return inner_->left(); }

 private:
  void annotate(HttpResponse* response) {
    service_->add_headers(origin_, response);
    service_->metrics_->on_response(response->status);
  }

  const ApiService* service_;
  std::shared_ptr<HttpExchange> inner_;
  std::string origin_;
};

const ApiService::Route ApiService::routes[] = {
    {"GET", "/", false, &ApiService::get_page},
    {"GET", "/page.css", false, &ApiService::get_page},
    {"GET", "/page.js", false, &ApiService::get_page},
    {"GET", "/health", false, &ApiService::get_health},
    {"GET", "/version", false, &ApiService::get_version},
    {"GET", "/metrics", false, &ApiService::get_metrics},
    {"GET", "/openapi.json", false, &ApiService::get_openapi},
    {"GET", "/v1/models", true, &ApiService::get_models},
    {"POST", "/v1/completions", true, &ApiService::post_completions},
    {"POST", "/v1/chat/completions", true, &ApiService::post_chat},
    {"POST", "/tokenize", true, &ApiService::post_tokenize},
    {"POST", "/detokenize", true, &ApiService::post_detokenize},
};

ApiService::ApiService(asio::io_context& io, EngineClient& engine, const ModelText& text,
                       ServerMetrics& metrics, ApiOptions options)
    : io_(&io),
      engine_(&engine),
      text_(&text),
      metrics_(&metrics),
      options_(std::move(options)),
      openapi_(openapi_document(options_)),
      worker_(worker_threads) {
  context_.io = &io;
  context_.engine = &engine;
  context_.metrics = &metrics;
  context_.request_timeout = options_.request_timeout;
  context_.mailbox =
      std::make_shared<EventMailbox>(io, [this](const AnswerKey& key, TokenEvent&& event) {
        const auto found = generations_.find(key.generation);
        if (found == generations_.end()) return;
        // A copy: the generation may end, and leave the list, in this call.
        const std::shared_ptr<Generation> generation = found->second;
        generation->on_event(key.choice, std::move(event));
      });
}

ApiService::~ApiService() { context_.mailbox->close(); }

// -- what every request goes through --

const ApiService::Route* ApiService::find_route(const HttpRequest& request,
                                                std::string* allowed) const {
  static const Route model_route = {"GET", "/v1/models/", true, &ApiService::get_model};
  const std::string_view method =
      request.method == "HEAD" ? "GET" : std::string_view(request.method);
  const auto consider = [&](const Route& route) {
    if (!allowed->empty()) *allowed += ", ";
    *allowed += route.method;
    return method == route.method;
  };
  if (request.path.size() > model_path.size() && request.path.starts_with(model_path)) {
    return consider(model_route) ? &model_route : nullptr;
  }
  for (const Route& route : routes) {
    if (request.path == route.path && consider(route)) return &route;
  }
  return nullptr;
}

bool ApiService::has_key(const HttpRequest& request) const {
  if (options_.api_keys.empty()) return true;
  constexpr std::string_view scheme = "Bearer ";
  if (!request.authorization.starts_with(scheme)) return false;
  const std::string_view given = std::string_view(request.authorization).substr(scheme.size());
  bool found = false;
  for (const std::string& key : options_.api_keys) found = same_secret(given, key) || found;
  return found;
}

bool ApiService::allows_origin(const std::string& origin) const {
  const std::vector<std::string>& allowed = options_.allowed_origins;
  return std::find(allowed.begin(), allowed.end(), "*") != allowed.end() ||
         std::find(allowed.begin(), allowed.end(), origin) != allowed.end();
}

void ApiService::add_headers(const std::string& origin, HttpResponse* response) const {
  response->headers.emplace_back("X-Content-Type-Options", "nosniff");
  if (origin.empty() || !allows_origin(origin)) return;
  response->headers.emplace_back("Access-Control-Allow-Origin", origin);
  response->headers.emplace_back("Vary", "Origin");
}

HttpResponse ApiService::finished(const HttpRequest& head, HttpResponse response) {
  add_headers(head.origin, &response);
  metrics_->on_response(response.status);
  return response;
}

HttpResponse ApiService::preflight() const {
  HttpResponse response;
  response.status = 204;
  response.content_type.clear();
  response.headers = {{"Access-Control-Allow-Methods", "GET, POST"},
                      {"Access-Control-Allow-Headers", "Authorization, Content-Type"},
                      {"Access-Control-Max-Age", "600"}};
  return response;
}

HttpResponse ApiService::protocol_error(int status, std::string_view message) {
  return finished(HttpRequest(), error_response(ApiError(status, std::string(message))));
}

std::optional<HttpResponse> ApiService::refuse(const HttpRequest& head) {
  std::string allowed;
  const Route* route = find_route(head, &allowed);
  const auto error = [&](int status, std::string message) {
    return finished(head, error_response(ApiError(status, std::move(message))));
  };
  if (allowed.empty()) {
    return error(404, fmt::format("there is no {} here (/openapi.json lists what there is)",
                                  printable(head.path)));
  }
  if (head.method == "OPTIONS" && !head.asked_method.empty() && allows_origin(head.origin)) {
    return finished(head, preflight());
  }
  if (route == nullptr) {
    HttpResponse response = error(
        405, fmt::format("{} is not allowed here, expected {}", printable(head.method), allowed));
    response.headers.emplace_back("Allow", allowed);
    return response;
  }
  if (route->needs_key && !has_key(head)) {
    return error(401, "the API key is missing or wrong (Authorization: Bearer KEY)");
  }
  if (head.method != "POST") return std::nullopt;
  // A page of another site can send other types without asking first.
  if (!is_json(head.content_type)) {
    return error(415, fmt::format("Content-Type is {}, expected application/json",
                                  printable(head.content_type)));
  }
  if (!head.content_encoding.empty() && head.content_encoding != "identity") {
    return error(415, fmt::format("Content-Encoding is {}, expected a body without one",
                                  printable(head.content_encoding)));
  }
  if (draining_) return error(503, "the server is shutting down");
  return std::nullopt;
}

void ApiService::handle(std::shared_ptr<HttpExchange> exchange, HttpRequest request) {
  std::string allowed;
  const Route* route = find_route(request, &allowed);
  auto annotated = std::make_shared<AnnotatedExchange>(*this, std::move(exchange), request.origin);
  (this->*route->answer)(std::move(annotated), std::move(request));
}

// -- small answers --

void ApiService::get_health(std::shared_ptr<HttpExchange> exchange, HttpRequest) {
  const EngineStats stats = engine_->stats();
  const auto fail = [&](const std::string& reason) {
    exchange->respond(error_response(ApiError(503, reason)));
  };
  if (draining_ || stats.draining) return fail("the server is shutting down");
  if (!stats.healthy) {
    return fail(fmt::format("the engine has failed: {}", single_line(stats.unhealthy_reason)));
  }
  const double limit = std::chrono::duration<double>(options_.stuck_after).count();
  if (stats.seconds_since_progress > limit) {
    return fail(
        fmt::format("the engine has made no progress for {:.0f} s", stats.seconds_since_progress));
  }
  exchange->respond(json_response(R"({"status":"ok"})"));
}

void ApiService::get_version(std::shared_ptr<HttpExchange> exchange, HttpRequest) {
  Json json;
  json["version"] = options_.version;
  exchange->respond(json_response(dump_json(json)));
}

void ApiService::get_metrics(std::shared_ptr<HttpExchange> exchange, HttpRequest) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = metrics_->text();
  exchange->respond(std::move(response));
}

Json model_json(const std::string& name, const ApiOptions& options) {
  Json json;
  json["id"] = name;
  json["object"] = "model";
  json["created"] = options.created;
  json["owned_by"] = "octet";
  json["root"] = options.model_names.front();
  json["parent"] = nullptr;
  json["max_model_len"] = options.limits.max_model_len;
  return json;
}

void ApiService::get_models(std::shared_ptr<HttpExchange> exchange, HttpRequest) {
  Json json;
  json["object"] = "list";
  json["data"] = Json::array();
  for (const std::string& name : options_.model_names) {
    json["data"].push_back(model_json(name, options_));
  }
  exchange->respond(json_response(dump_json(json)));
}

void ApiService::get_model(std::shared_ptr<HttpExchange> exchange, HttpRequest request) {
  const std::string name = request.path.substr(model_path.size());
  const std::vector<std::string>& names = options_.model_names;
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    return exchange->respond(error_response(
        ApiError(404, fmt::format("the model {} does not exist here", printable(name)), "model",
                 "model_not_found")));
  }
  exchange->respond(json_response(dump_json(model_json(name, options_))));
}

void ApiService::get_openapi(std::shared_ptr<HttpExchange> exchange, HttpRequest) {
  exchange->respond(json_response(openapi_));
}

void ApiService::get_page(std::shared_ptr<HttpExchange> exchange, HttpRequest request) {
  const PageAsset& asset = page_asset(request.path);
  HttpResponse response;
  response.content_type = asset.content_type;
  response.body = asset.text;
  // Nothing but these files and this server: what a model writes can neither run nor load anything.
  response.headers = {
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
       "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
      {"Referrer-Policy", "no-referrer"},
      {"Cache-Control", "no-cache"}};
  exchange->respond(std::move(response));
}

// -- work --

void ApiService::post_completions(std::shared_ptr<HttpExchange> exchange, HttpRequest request) {
  generate(std::move(exchange), std::move(request.body), prepare_completion);
}

void ApiService::post_chat(std::shared_ptr<HttpExchange> exchange, HttpRequest request) {
  generate(std::move(exchange), std::move(request.body), prepare_chat);
}

void ApiService::post_tokenize(std::shared_ptr<HttpExchange> exchange, HttpRequest request) {
  answer_text(std::move(exchange), std::move(request.body), answer_tokenize);
}

void ApiService::post_detokenize(std::shared_ptr<HttpExchange> exchange, HttpRequest request) {
  answer_text(std::move(exchange), std::move(request.body), answer_detokenize);
}

// The exchange is the I/O thread's: the worker only hands it back, and never holds the last of it.
void ApiService::generate(std::shared_ptr<HttpExchange> exchange, std::string body,
                          Prepare prepare) {
  ++preparing_;
  worker_.add([this, exchange = std::move(exchange), body = std::move(body), prepare]() mutable {
    auto outcome = std::make_shared<Outcome<PreparedGeneration>>(
        exchange->left()
            ? ApiError(400, "the client is gone")
            : outcome_of<PreparedGeneration>([&] { return prepare(body, *text_, options_); }));
    forget(&body);
    asio::post(*io_, [this, exchange = std::move(exchange), outcome] {
      --preparing_;
      exchange->body_understood();
      if (const auto* error = std::get_if<ApiError>(outcome.get())) {
        return exchange->respond(error_response(*error));
      }
      start(exchange, std::move(std::get<PreparedGeneration>(*outcome)));
    });
  });
}

void ApiService::start(std::shared_ptr<HttpExchange> exchange, PreparedGeneration prepared) {
  const std::uint64_t key = next_key_++;
  const auto generation = std::make_shared<Generation>(key, context_, std::move(prepared), exchange,
                                                       [this, key] { generations_.erase(key); });
  generations_.emplace(key, generation);
  try {
    generation->start();
  } catch (const ApiError& error) {
    generations_.erase(key);
    exchange->respond(error_response(error));
  }
}

void ApiService::answer_text(std::shared_ptr<HttpExchange> exchange, std::string body,
                             Answer answer) {
  worker_.add([this, exchange = std::move(exchange), body = std::move(body), answer]() mutable {
    auto outcome = std::make_shared<Outcome<std::string>>(
        outcome_of<std::string>([&] { return answer(body, *text_, options_); }));
    forget(&body);
    asio::post(*io_, [exchange = std::move(exchange), outcome] {
      exchange->body_understood();
      if (const auto* error = std::get_if<ApiError>(outcome.get())) {
        return exchange->respond(error_response(*error));
      }
      exchange->respond(json_response(std::move(std::get<std::string>(*outcome))));
    });
  });
}

void ApiService::keep_streams_alive() {
  const auto now = std::chrono::steady_clock::now();
  // A write may find that its reader is gone; the generation still ends by an event, later.
  for (const auto& [key, generation] : generations_) generation->keep_alive(now, most_silence);
}

}  // namespace octet
