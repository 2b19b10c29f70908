// A request and a response of HTTP, as what answers requests sees them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octet {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // of the target, up to a question mark, as sent
  std::string origin;
  std::string authorization;
  std::string content_type;
  std::string content_encoding;
  std::string asked_method;  // of a preflight: Access-Control-Request-Method
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

enum class LeaveReason {
  gone,      // the client closed its side, or the connection broke
  too_slow,  // it did not read what it was sent, and was cut
};

// One request's way back to its client. All of it is for the I/O thread alone, and nothing blocks.
// Either respond() is called once, or begin_stream(), write() any number of times and end_stream().
// After the client has left, or was cut, all calls do nothing.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  // The request's body is parsed or dropped: it takes no room among the bodies being read.
  virtual void body_understood() = 0;
  virtual void respond(HttpResponse response) = 0;
  // The body of `head` is the stream's first part.
  virtual void begin_stream(HttpResponse head) = 0;
  virtual void write(std::string_view part) = 0;
  virtual void end_stream() = 0;
  // Calls `leave` once if the client is gone, or is cut, before the answer is complete.
  virtual void on_leave(std::function<void(LeaveReason)> leave) = 0;
  // Whether nobody waits for the answer any more. Any thread may ask.
  virtual bool left() const = 0;
};

// What answers requests.
class HttpService {
 public:
  virtual ~HttpService() = default;
  // Called before the body is read: a response refuses the request, and the body is never read.
  virtual std::optional<HttpResponse> refuse(const HttpRequest& head) = 0;
  virtual void handle(std::shared_ptr<HttpExchange> exchange, HttpRequest request) = 0;
  // The body of an error that the protocol itself asks for, in the service's form.
  virtual HttpResponse protocol_error(int status, std::string_view message) = 0;
};

}  // namespace octet
