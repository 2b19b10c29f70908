#include "server/connection.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <optional>
#include <string>
#include <utility>

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "server/asio.h"
#include "server/http_head.h"

namespace octet {

namespace {

namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;
using Parser = http::request_parser<http::string_body>;

// Beyond the head: the line before a chunk, and what a client sends ahead of an answer, of which
// more ends the connection.
constexpr std::size_t most_unparsed_bytes = std::size_t{64} << 10;
constexpr std::size_t head_read_bytes = 4096;
constexpr std::size_t body_read_bytes = std::size_t{64} << 10;
// What is read and dropped after a refusal, so that the client gets to read it before its own
// unread bytes reset the connection.
constexpr std::size_t most_discarded_bytes = std::size_t{4} << 20;
constexpr std::chrono::milliseconds discard_time{2'000};

HttpHead head_of(const Parser::value_type& message) {
  HttpHead head;
  head.method = std::string(message.method_string());
  head.target = std::string(message.target());
  head.version = static_cast<int>(message.version());
  for (const auto& field : message) {
    head.fields.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  return head;
}

HttpRequest request_of(const HttpHead& head) {
  HttpRequest request;
  request.method = head.method;
  request.path = head.target.substr(0, head.target.find('?'));
  request.origin = field_of(head, "origin");
  request.authorization = field_of(head, "authorization");
  request.content_type = field_of(head, "content-type");
  request.content_encoding = field_of(head, "content-encoding");
  request.asked_method = field_of(head, "access-control-request-method");
  return request;
}

int status_of(const NetworkError& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) return 431;
  if (error == http::error::body_limit) return 413;
  return 400;
}

std::string message_of(const NetworkError& error, const ConnectionLimits& limits) {
  switch (status_of(error)) {
    case 431:
      return fmt::format("the request's head is longer than {} bytes", limits.header_bytes);
    case 413:
      return fmt::format("the request's body is longer than {} bytes", limits.body_bytes);
    default:
      return fmt::format("the request is not valid HTTP: {}", error.message());
  }
}

class HttpConnection;

// The client may be gone and the connection serve another request by the time that an answer comes:
// an exchange that is over knows no connection.
class ConnectionExchange : public HttpExchange {
 public:
  explicit ConnectionExchange(std::shared_ptr<HttpConnection> connection)
      : connection_(std::move(connection)) {}

  void respond(HttpResponse response) override;
  void begin_stream(HttpResponse head) override;
  void write(std::string_view part) override;
  void end_stream() override;
  void body_understood() override;
  void on_leave(std::function<void(LeaveReason)> leave) override { leave_ = std::move(leave); }
  bool left() const override { return left_.load(std::memory_order_relaxed); }

  // The connection is gone.
  void abandon(LeaveReason reason) {
    left_.store(true, std::memory_order_relaxed);
    connection_.reset();
    if (const auto leave = std::exchange(leave_, nullptr)) leave(reason);
  }
  // The answer is complete.
  std::shared_ptr<HttpConnection> finish() {
    leave_ = nullptr;
    return std::exchange(connection_, nullptr);
  }

 private:
  std::shared_ptr<HttpConnection> connection_;
  std::function<void(LeaveReason)> leave_;
  std::atomic<bool> left_{false};
};

class HttpConnection : public Connection, public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(Tcp::socket socket, HttpService& service, const ConnectionLimits& limits,
                 ConnectionCounts& counts)
      : socket_(std::move(socket)),
        service_(&service),
        limits_(&limits),
        counts_(&counts),
        timer_(socket_.get_executor()),
        buffer_(limits.header_bytes + most_unparsed_bytes + body_read_bytes) {
    ++counts_->open;
  }
  ~HttpConnection() override {
    release_body();
    --counts_->open;
  }

  void start() override {
    NetworkError ignored;
    socket_.set_option(Tcp::no_delay(true), ignored);
    timer_due_ = Clock::time_point::max();
    wait_for_request();
  }

  void close_if_idle() override {
    if (phase_ == Phase::idle) close();
  }

  // Of the exchange.
  void release_body() { counts_->body_bytes -= std::exchange(charged_bytes_, 0); }
  void send_whole(HttpResponse response);
  void send_head(HttpResponse head);
  void send_part(std::string_view part);
  void send_end();

 private:
  enum class Phase { idle, head, body, answering, discarding, closed };

  void wait_for_request();
  void read();
  void on_read(const NetworkError& error, std::size_t bytes);
  void begin_head();
  bool parse_more();
  void parse_head();
  void parse_body();
  bool charge_body();
  void answer();
  void refuse(HttpResponse response);
  void append_head(const HttpResponse& response, const char* framing);
  void flush();
  void on_written(const NetworkError& error, std::size_t bytes);
  void on_all_written();
  void set_deadline(std::chrono::milliseconds time);
  void clear_deadline() { deadline_ = Clock::time_point::max(); }
  void wait_for_timer();
  void on_deadline();
  void close(LeaveReason reason = LeaveReason::gone);

  Tcp::socket socket_;
  HttpService* service_;
  const ConnectionLimits* limits_;
  ConnectionCounts* counts_;
  asio::steady_timer timer_;
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point timer_due_ = Clock::time_point::max();  // when the timer runs out
  Clock::time_point body_deadline_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  Phase phase_ = Phase::idle;
  HttpRequest request_;
  std::shared_ptr<ConnectionExchange> exchange_;
  std::size_t charged_bytes_ = 0;  // of the body, in counts_
  std::size_t discarded_bytes_ = 0;
  std::string writing_;  // on its way
  std::size_t written_ = 0;
  std::string unsent_;  // to be written next
  bool write_pending_ = false;
  bool reading_ = false;
  bool keep_alive_ = false;
  bool chunked_ = false;
  bool head_only_ = false;
  bool answer_complete_ = false;
  bool refused_ = false;
};

void ConnectionExchange::respond(HttpResponse response) {
  if (const auto connection = finish()) connection->send_whole(std::move(response));
}
void ConnectionExchange::body_understood() {
  if (connection_) connection_->release_body();
}
void ConnectionExchange::begin_stream(HttpResponse head) {
  if (connection_) connection_->send_head(std::move(head));
}
void ConnectionExchange::write(std::string_view part) {
  // A copy of the pointer: to cut the reader abandons this exchange.
  if (const auto connection = connection_) connection->send_part(part);
}
void ConnectionExchange::end_stream() {
  if (const auto connection = finish()) connection->send_end();
}

// -- deadlines --

// A deadline moves with every part that is written or read, so the timer is not set anew each time:
// it looks at the deadline when it runs out.
void HttpConnection::set_deadline(std::chrono::milliseconds time) {
  deadline_ = Clock::now() + time;
  if (deadline_ < timer_due_) wait_for_timer();
}

void HttpConnection::wait_for_timer() {
  timer_due_ = deadline_;
  timer_.expires_at(deadline_);
  timer_.async_wait([weak = weak_from_this(), due = timer_due_](const NetworkError& error) {
    const auto self = weak.lock();
    if (!self || error || self->phase_ == Phase::closed || self->timer_due_ != due) return;
    self->timer_due_ = Clock::time_point::max();
    if (self->deadline_ == Clock::time_point::max()) return;
    if (Clock::now() < self->deadline_) return self->wait_for_timer();
    self->on_deadline();
  });
}

void HttpConnection::on_deadline() {
  clear_deadline();
  if (phase_ == Phase::head || phase_ == Phase::body) {
    const char* part = phase_ == Phase::head ? "head" : "body";
    return refuse(
        service_->protocol_error(408, fmt::format("the request's {} took too long to come", part)));
  }
  if (phase_ != Phase::answering) return close();
  ++counts_->cut;
  close(LeaveReason::too_slow);
}

// -- reading --

void HttpConnection::wait_for_request() {
  phase_ = Phase::idle;
  answer_complete_ = false;
  exchange_.reset();
  set_deadline(limits_->idle_time);
  if (buffer_.size() > 0) begin_head();
  if (phase_ != Phase::closed) read();
}

// One read is pending at all times: while an answer is on its way it is what notices that the
// client is gone, and what it brings is the start of the next request.
void HttpConnection::read() {
  if (reading_ || phase_ == Phase::closed) return;
  const std::size_t room = buffer_.max_size() - buffer_.size();
  if (room == 0) return close();
  reading_ = true;
  const std::size_t wanted = phase_ == Phase::body ? body_read_bytes : head_read_bytes;
  socket_.async_read_some(
      buffer_.prepare(std::min(wanted, room)),
      [self = shared_from_this()](const NetworkError& error, std::size_t bytes) {
        self->reading_ = false;
        self->on_read(error, bytes);
      });
}

void HttpConnection::on_read(const NetworkError& error, std::size_t bytes) {
  if (phase_ == Phase::closed) return;
  if (error) {
    // A refusal is told even to a client that has ended its own side.
    if (phase_ == Phase::answering && refused_) return;
    return close();
  }
  buffer_.commit(bytes);
  switch (phase_) {
    case Phase::idle:
      begin_head();
      break;
    case Phase::head:
      parse_head();
      break;
    case Phase::body:
      parse_body();
      break;
    case Phase::discarding:
      discarded_bytes_ += bytes;
      if (discarded_bytes_ > most_discarded_bytes) return close();
      buffer_.clear();
      break;
    case Phase::answering:
      if (refused_) buffer_.clear();
      break;
    case Phase::closed:
      return;
  }
  read();
}

void HttpConnection::begin_head() {
  phase_ = Phase::head;
  keep_alive_ = false;
  chunked_ = false;
  head_only_ = false;
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(limits_->header_bytes));
  parser_->body_limit(limits_->body_bytes);
  set_deadline(limits_->header_time);
  parse_head();
}

// False where more must be read first, or the request was refused.
bool HttpConnection::parse_more() {
  NetworkError error;
  const std::size_t used = parser_->put(buffer_.data(), error);
  buffer_.consume(used);
  if (error == http::error::need_more) {
    if (buffer_.size() < most_unparsed_bytes + limits_->header_bytes) return false;
    error = http::error::buffer_overflow;
  }
  if (!error) return used > 0;
  refuse(service_->protocol_error(status_of(error), message_of(error, *limits_)));
  return false;
}

void HttpConnection::parse_head() {
  if (!parse_more()) return;
  if (!parser_->is_header_done()) return;
  const HttpHead head = head_of(parser_->get());
  head_only_ = head.method == "HEAD";
  if (const auto fault = find_head_fault(head)) {
    return refuse(service_->protocol_error(fault->status, fault->message));
  }
  request_ = request_of(head);
  keep_alive_ = parser_->get().keep_alive();
  chunked_ = head.version == 11;
  const auto length = parser_->content_length();
  if (length && *length > limits_->body_bytes) {
    return refuse(service_->protocol_error(413, message_of(http::error::body_limit, *limits_)));
  }
  if (auto refusal = service_->refuse(request_)) {
    // Behind a body that is not read nothing can be read.
    if (!parser_->is_done()) return refuse(std::move(*refusal));
    phase_ = Phase::answering;
    return send_whole(std::move(*refusal));
  }
  if (parser_->is_done()) return answer();
  phase_ = Phase::body;
  parser_->eager(true);
  body_deadline_ = Clock::now() + limits_->body_time;
  if (!field_of(head, "expect").empty() && head.version == 11 && buffer_.size() == 0) {
    unsent_ += "HTTP/1.1 100 Continue\r\n\r\n";
    flush();
  }
  parse_body();
}

void HttpConnection::parse_body() {
  while (buffer_.size() > 0 && !parser_->is_done()) {
    if (!parse_more()) break;
  }
  if (phase_ != Phase::body) return;
  if (!charge_body()) {
    return refuse(service_->protocol_error(
        503, "the server holds as many bytes of unread requests as it may; try again later"));
  }
  if (parser_->is_done()) {
    request_.body = std::move(parser_->get().body());
    return answer();
  }
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(body_deadline_ - Clock::now());
  set_deadline(std::clamp(left, std::chrono::milliseconds(0), limits_->body_pause));
}

// Counts what has come of the body among all that the server holds.
bool HttpConnection::charge_body() {
  const std::size_t now = parser_->get().body().size();
  counts_->body_bytes += now - charged_bytes_;
  charged_bytes_ = now;
  return counts_->body_bytes <= limits_->all_body_bytes;
}

void HttpConnection::answer() {
  phase_ = Phase::answering;
  clear_deadline();
  parser_.reset();
  exchange_ = std::make_shared<ConnectionExchange>(shared_from_this());
  service_->handle(exchange_, std::move(request_));
}

// -- writing --

// Answers a request whose end in the connection is not known: nothing after it can be read.
void HttpConnection::refuse(HttpResponse response) {
  phase_ = Phase::answering;
  keep_alive_ = false;
  refused_ = true;
  parser_.reset();
  release_body();
  send_whole(std::move(response));
}

std::string date_now() {
  static thread_local std::time_t told = 0;
  static thread_local std::string text;
  const std::time_t now = std::time(nullptr);
  if (now != told) {
    told = now;
    text = fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(now));
  }
  return text;
}

void HttpConnection::append_head(const HttpResponse& response, const char* framing) {
  if (counts_->closing) keep_alive_ = false;
  const auto reason =
      http::obsolete_reason(http::int_to_status(static_cast<unsigned>(response.status)));
  auto out = std::back_inserter(unsent_);
  fmt::format_to(out, "HTTP/1.1 {} {}\r\nDate: {}\r\n", response.status,
                 std::string_view(reason.data(), reason.size()), date_now());
  if (!response.content_type.empty()) {
    fmt::format_to(out, "Content-Type: {}\r\n", response.content_type);
  }
  for (const auto& [name, value] : response.headers) {
    fmt::format_to(out, "{}: {}\r\n", name, value);
  }
  fmt::format_to(out, "{}Connection: {}\r\n\r\n", framing, keep_alive_ ? "keep-alive" : "close");
}

void HttpConnection::send_whole(HttpResponse response) {
  if (phase_ == Phase::closed) return;
  release_body();
  const std::string framing = response.status == 204
                                  ? std::string()
                                  : fmt::format("Content-Length: {}\r\n", response.body.size());
  append_head(response, framing.c_str());
  if (!head_only_ && response.status != 204) unsent_ += response.body;
  answer_complete_ = true;
  flush();
}

void HttpConnection::send_head(HttpResponse head) {
  if (phase_ == Phase::closed) return;
  release_body();
  // A stream to an HTTP/1.0 client ends with the connection.
  if (!chunked_) keep_alive_ = false;
  append_head(head, chunked_ ? "Transfer-Encoding: chunked\r\n" : "");
  if (!head.body.empty()) send_part(head.body);
  flush();
}

void HttpConnection::send_part(std::string_view part) {
  if (phase_ == Phase::closed || part.empty()) return;
  if (chunked_) {
    fmt::format_to(std::back_inserter(unsent_), "{:x}\r\n{}\r\n", part.size(), part);
  } else {
    unsent_ += part;
  }
  flush();
  if (phase_ != Phase::closed && unsent_.size() > limits_->unsent_bytes) {
    ++counts_->cut;
    close(LeaveReason::too_slow);
  }
}

void HttpConnection::send_end() {
  if (phase_ == Phase::closed) return;
  if (chunked_) unsent_ += "0\r\n\r\n";
  answer_complete_ = true;
  flush();
}

void HttpConnection::flush() {
  if (write_pending_ || phase_ == Phase::closed) return;
  if (unsent_.empty()) {
    if (answer_complete_) on_all_written();
    return;
  }
  write_pending_ = true;
  writing_.clear();
  std::swap(writing_, unsent_);
  written_ = 0;
  set_deadline(limits_->stall_time);
  on_written(NetworkError(), 0);
}

void HttpConnection::on_written(const NetworkError& error, std::size_t bytes) {
  if (phase_ == Phase::closed) return;
  if (error) return close();
  written_ += bytes;
  if (written_ == writing_.size()) {
    write_pending_ = false;
    if (phase_ == Phase::answering) clear_deadline();
    return flush();
  }
  if (bytes > 0) set_deadline(limits_->stall_time);
  socket_.async_write_some(asio::buffer(writing_.data() + written_, writing_.size() - written_),
                           [self = shared_from_this()](const NetworkError& e, std::size_t n) {
                             self->on_written(e, n);
                           });
}

void HttpConnection::on_all_written() {
  if (keep_alive_ && !counts_->closing) return wait_for_request();
  NetworkError ignored;
  socket_.shutdown(Tcp::socket::shutdown_send, ignored);
  if (!refused_) return close();
  phase_ = Phase::discarding;
  set_deadline(discard_time);
  read();
}

void HttpConnection::close(LeaveReason reason) {
  if (phase_ == Phase::closed) return;
  phase_ = Phase::closed;
  timer_.cancel();
  NetworkError ignored;
  socket_.close(ignored);
  if (const auto exchange = std::exchange(exchange_, nullptr)) exchange->abandon(reason);
}

}  // namespace

std::shared_ptr<Connection> Connection::create(Tcp::socket socket, HttpService& service,
                                               const ConnectionLimits& limits,
                                               ConnectionCounts& counts) {
  return std::make_shared<HttpConnection>(std::move(socket), service, limits, counts);
}

}  // namespace octet
