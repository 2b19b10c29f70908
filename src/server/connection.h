// One client's connection: HTTP/1.1 in and out, within limits.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "server/asio.h"
#include "server/http_message.h"

namespace octet {

struct ConnectionLimits {
  std::size_t connections = 8192;  // open at once
  std::size_t header_bytes = std::size_t{16} << 10;
  std::size_t body_bytes = std::size_t{16} << 20;      // of one request
  std::size_t all_body_bytes = std::size_t{64} << 20;  // of all requests not yet understood
  // What a stream may have waiting for its reader beyond the system's own buffer.
  std::size_t unsent_bytes = std::size_t{256} << 10;
  std::chrono::milliseconds header_time{15'000};  // from a request's first byte to its head's end
  std::chrono::milliseconds idle_time{75'000};    // between requests
  std::chrono::milliseconds body_pause{20'000};   // between two parts of a body
  std::chrono::milliseconds body_time{180'000};   // for a whole body
  std::chrono::milliseconds stall_time{30'000};   // until a reader that takes nothing is cut
};

// What all connections share; the I/O thread alone touches it.
struct ConnectionCounts {
  std::size_t open = 0;
  std::size_t body_bytes = 0;
  std::int64_t cut = 0;  // streams ended because their reader took nothing
  bool closing = false;  // every response is its connection's last
};

// Serves requests from `socket` until the client leaves, breaks a rule, or is too slow. It keeps
// itself alive; all that it is given outlives it. Requests that come before the answer to the one
// ahead wait in the socket.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual void start() = 0;
  // Ends it now where no request is being answered.
  virtual void close_if_idle() = 0;

  static std::shared_ptr<Connection> create(Tcp::socket socket, HttpService& service,
                                            const ConnectionLimits& limits,
                                            ConnectionCounts& counts);
};

}  // namespace octet
