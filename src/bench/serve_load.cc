#include "bench/serve_load.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <fmt/format.h>

#include "bench/event_stream.h"
#include "bench/serve_prompt.h"
#include "core/error.h"
#include "core/json.h"
#include "core/printable.h"

namespace octet {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Tcp = asio::ip::tcp;
using NetworkError = boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr std::size_t most_response_bytes = std::size_t{1} << 30;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

http::request<http::string_body> make_request(const ServeLoad& load, http::verb verb,
                                              const std::string& path) {
  http::request<http::string_body> request(verb, path, 11);
  request.set(http::field::host, load.host + ":" + std::to_string(load.port));
  request.set(http::field::connection, "close");
  if (!load.api_key.empty()) request.set(http::field::authorization, "Bearer " + load.api_key);
  return request;
}

Tcp::resolver::results_type resolve(asio::io_context& io, const ServeLoad& load) {
  NetworkError error;
  auto found = Tcp::resolver(io).resolve(load.host, std::to_string(load.port), error);
  if (error) throw_bad_input("{}: {}", printable(load.host), error.message());
  return found;
}

std::string ask_for_model(asio::io_context& io, const ServeLoad& load) {
  beast::tcp_stream stream(io);
  try {
    stream.connect(resolve(io, load));
    http::write(stream, make_request(load, http::verb::get, "/v1/models"));
    beast::flat_buffer buffer;
    http::response<http::string_body> response;
    http::read(stream, buffer, response);
    if (response.result() != http::status::ok) {
      throw_bad_input("the server answers /v1/models with status {}", response.result_int());
    }
    return parse_json(response.body(), "the answer of /v1/models")
        .at("data")
        .at(0)
        .at("id")
        .get<std::string>();
  } catch (const boost::system::system_error& error) {
    throw_bad_input("{}:{}: {}", printable(load.host), load.port, error.code().message());
  } catch (const Json::exception&) {
    throw_bad_input("the server's answer to /v1/models names no model; give one with --model");
  }
}

// One request on a connection of its own.
class Client : public std::enable_shared_from_this<Client> {
 public:
  Client(asio::io_context& io, const ServeLoad& load, const std::string& model, std::string prompt,
         std::int64_t input_len, std::int64_t output_len, Clock::time_point load_start,
         std::function<void(ServeRecord)> done)
      : load_(load), stream_(io), load_start_(load_start), done_(std::move(done)) {
    record_.input_tokens = input_len;
    request_ = make_request(load, http::verb::post, load.path);
    request_.set(http::field::content_type, "application/json");
    request_.body() = body_of(model, std::move(prompt), output_len);
    request_.prepare_payload();
    parser_.body_limit(most_response_bytes);
    // Not eager: such a parser's async_read_some ends with the message, and every token would seem
    // to come then.
    parser_.eager(false);
  }

  void start(const Tcp::resolver::results_type& endpoints) {
    start_ = Clock::now();
    record_.start = seconds(start_ - load_start_);
    stream_.expires_after(load_.timeout);
    stream_.async_connect(endpoints,
                          [self = shared_from_this()](const NetworkError& error, auto&&) {
                            if (error) return self->fail(error.message());
                            self->write();
                          });
  }

 private:
  std::string body_of(const std::string& model, std::string prompt, std::int64_t output_len) const {
    Json body;
    body["model"] = model;
    if (load_.endpoint == ServeEndpoint::chat) {
      body["messages"] = Json::array({Json{{"role", "user"}, {"content", std::move(prompt)}}});
    } else {
      body["prompt"] = std::move(prompt);
    }
    body["max_tokens"] = output_len;
    body["temperature"] = load_.temperature;
    body["stream"] = true;
    body["stream_options"]["include_usage"] = true;
    if (load_.ignore_eos) body["ignore_eos"] = true;
    return dump_json(body);
  }

  void write() {
    http::async_write(stream_, request_,
                      [self = shared_from_this()](const NetworkError& error, std::size_t) {
                        if (error) return self->fail(error.message());
                        self->read();
                      });
  }

  void read() {
    http::async_read_some(stream_, buffer_, parser_,
                          [self = shared_from_this()](const NetworkError& error, std::size_t) {
                            self->on_read(error);
                          });
  }

  void on_read(const NetworkError& error) {
    const auto now = Clock::now();
    if (parser_.is_header_done()) {
      const auto status = parser_.get().result_int();
      if (status == 200) {
        events_.push(parser_.get().body(), [&](std::string_view data) { on_data(data, now); });
        parser_.get().body().clear();
      } else if (parser_.is_done() || error) {
        return fail(fmt::format("status {}: {}", status, parser_.get().body().substr(0, 300)));
      }
    }
    if (!failed_.empty()) return fail(failed_);
    if (parser_.is_done()) return finish(now);
    if (error) return fail(error.message());
    read();
  }

  void on_data(std::string_view data, Clock::time_point now) {
    if (data == "[DONE]") return;
    Json json;
    try {
      json = parse_json(data, "an event");
    } catch (const Error& error) {
      failed_ = error.what();
      return;
    }
    if (json.contains("error")) {
      failed_ = dump_json(json["error"]).substr(0, 300);
      return;
    }
    if (json.contains("usage") && json["usage"].is_object()) {
      const Json& usage = json["usage"];
      record_.input_tokens = usage.value("prompt_tokens", record_.input_tokens);
      counted_tokens_ = usage.value("completion_tokens", std::int64_t{-1});
    }
    if (!holds_text(json)) return;
    if (record_.times.empty()) {
      record_.first_token = seconds(now - start_);
    } else {
      record_.gaps.push_back(seconds(now - last_));
    }
    last_ = now;
    record_.times.push_back(seconds(now - load_start_));
  }

  bool holds_text(const Json& json) const {
    if (!json.contains("choices") || !json["choices"].is_array() || json["choices"].empty()) {
      return false;
    }
    const Json& choice = json["choices"][0];
    const Json* text = nullptr;
    if (load_.endpoint == ServeEndpoint::chat) {
      if (!choice.contains("delta") || !choice["delta"].contains("content")) return false;
      text = &choice["delta"]["content"];
    } else {
      if (!choice.contains("text")) return false;
      text = &choice["text"];
    }
    return text->is_string() && !text->get_ref<const std::string&>().empty();
  }

  void finish(Clock::time_point now) {
    if (parser_.get().result_int() != 200 || record_.times.empty()) {
      return fail("the stream held no text");
    }
    record_.completed = true;
    record_.latency = seconds(now - start_);
    record_.output_tokens =
        counted_tokens_ >= 0 ? counted_tokens_ : static_cast<std::int64_t>(record_.times.size());
    end();
  }
  void fail(std::string reason) {
    record_.error = std::move(reason);
    record_.latency = seconds(Clock::now() - start_);
    end();
  }
  void end() {
    if (auto done = std::exchange(done_, nullptr)) done(std::move(record_));
  }

  const ServeLoad& load_;
  beast::tcp_stream stream_;
  Clock::time_point load_start_;
  std::function<void(ServeRecord)> done_;
  http::request<http::string_body> request_;
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
  EventStream events_;
  ServeRecord record_;
  std::string failed_;
  Clock::time_point start_;
  Clock::time_point last_;
  std::int64_t counted_tokens_ = -1;
};

// Starts requests at their times, as many at once as may run.
class Load {
 public:
  Load(asio::io_context& io, const ServeLoad& load, std::string model, std::int64_t requests,
       std::uint64_t seed, std::function<void(std::int64_t)> progress)
      : io_(io),
        load_(load),
        requests_(requests),
        random_(seed),
        timer_(io),
        endpoints_(resolve(io, load)),
        progress_(std::move(progress)) {
    result_.model = std::move(model);
  }

  ServeResult run() {
    start_ = Clock::now();
    next_arrival_ = start_;
    wait_for_arrival();
    io_.restart();
    io_.run();
    result_.duration = seconds(Clock::now() - start_);
    return std::move(result_);
  }

 private:
  void wait_for_arrival() {
    if (arrived_ == requests_) return;
    timer_.expires_at(next_arrival_);
    timer_.async_wait([this](const NetworkError& error) {
      if (error) return;
      ++arrived_;
      ++waiting_;
      if (load_.request_rate > 0) {
        // Exponential gaps: a Poisson process.
        const double uniform = (static_cast<double>(random_() >> 11) + 0.5) * 0x1p-53;
        next_arrival_ += std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double>(-std::log(uniform) / load_.request_rate));
      }
      start_waiting();
      wait_for_arrival();
    });
  }

  void start_waiting() {
    while (waiting_ > 0 && (load_.max_concurrency == 0 || running_ < load_.max_concurrency)) {
      --waiting_;
      ++running_;
      result_.most_at_once = std::max(result_.most_at_once, running_);
      const std::int64_t input = random_length(random_, load_.input_len, load_.range_ratio);
      const std::int64_t output = random_length(random_, load_.output_len, load_.range_ratio);
      std::make_shared<Client>(io_, load_, result_.model, random_prompt(random_, input), input,
                               output, start_,
                               [this](ServeRecord record) {
                                 --running_;
                                 result_.records.push_back(std::move(record));
                                 progress_(static_cast<std::int64_t>(result_.records.size()));
                                 start_waiting();
                               })
          ->start(endpoints_);
    }
  }

  asio::io_context& io_;
  const ServeLoad& load_;
  std::int64_t requests_;
  std::mt19937_64 random_;
  asio::steady_timer timer_;
  Tcp::resolver::results_type endpoints_;
  std::function<void(std::int64_t)> progress_;
  ServeResult result_;
  Clock::time_point start_;
  Clock::time_point next_arrival_;
  std::int64_t arrived_ = 0;
  std::int64_t waiting_ = 0;
  std::int64_t running_ = 0;
};

}  // namespace

ServeResult run_serve_load(const ServeLoad& load,
                           const std::function<void(std::int64_t done)>& progress) {
  asio::io_context io{1};
  const std::string model = load.model.empty() ? ask_for_model(io, load) : load.model;
  if (load.warmups > 0) {
    ServeLoad warmup = load;
    warmup.request_rate = 0;
    // Prompts of its own, so that none is in the server's cache when it is measured.
    Load(io, warmup, model, load.warmups, load.seed ^ 0x9e3779b97f4a7c15u, [](std::int64_t) {
    }).run();
  }
  return Load(io, load, model, load.prompts, load.seed, progress).run();
}

}  // namespace octet
