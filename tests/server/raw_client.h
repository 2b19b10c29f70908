// A client that sends the bytes that a test gives it, right or wrong.
#pragma once

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace octet {
inline namespace test_support {

class RawClient {
 public:
  // `receive_buffer` bytes of window, where that matters.
  explicit RawClient(std::uint16_t port, int receive_buffer = 0) {
    socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket_ < 0) throw std::runtime_error("no socket");
    if (receive_buffer > 0) {
      setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      ::close(socket_);
      throw std::runtime_error("cannot connect");
    }
  }
  ~RawClient() { close(); }
  RawClient(RawClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), received_(std::move(other.received_)) {}
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void end_sending() { shutdown(socket_, SHUT_WR); }

  // False where the server has closed its side meanwhile.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  // Reads what comes next. False where nothing came in time, or the server has closed.
  bool read_more(std::chrono::milliseconds time = std::chrono::seconds(10)) {
    pollfd entry{socket_, POLLIN, 0};
    if (poll(&entry, 1, static_cast<int>(time.count())) <= 0) return false;
    char buffer[16384];
    const ssize_t got = recv(socket_, buffer, sizeof(buffer), 0);
    closed_ = got <= 0;
    if (got > 0) received_.append(buffer, static_cast<std::size_t>(got));
    return got > 0;
  }
  const std::string& received() const { return received_; }

  // Reads until `text` has come, the server closes, or the time is over; everything so far.
  const std::string& read_until(std::string_view text,
                                std::chrono::milliseconds time = std::chrono::seconds(10)) {
    const auto deadline = std::chrono::steady_clock::now() + time;
    while (received_.find(text) == std::string::npos) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0 || !read_more(left)) break;
    }
    return received_;
  }
  // Everything until the server closes.
  const std::string& read_all(std::chrono::milliseconds time = std::chrono::seconds(10)) {
    return read_until(std::string_view("\xff no answer holds this", 22), time);
  }
  bool closed() const { return closed_; }
  void forget() { received_.clear(); }

 private:
  int socket_ = -1;
  std::string received_;
  bool closed_ = false;
};

inline std::string get_text(std::string_view path, std::string_view more = "") {
  return fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n{}\r\n", path, more);
}

inline std::string post_text(std::string_view path, std::string_view body,
                             std::string_view more = "") {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}"
      "\r\n{}",
      path, body.size(), more, body);
}

inline int status_of(std::string_view response) {
  if (!response.starts_with("HTTP/1.1 ") || response.size() < 12) return 0;
  return std::stoi(std::string(response.substr(9, 3)));
}

}  // namespace test_support
}  // namespace octet
