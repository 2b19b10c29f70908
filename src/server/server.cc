#include "server/server.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <utility>
#include <vector>

#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>
#include <sys/resource.h>

#include "core/error.h"
#include "core/printable.h"
#include "server/api_service.h"
#include "server/asio.h"
#include "server/log.h"
#include "server/throughput_log.h"

namespace octet {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int backlog = 4096;
constexpr std::chrono::milliseconds retry_accept{100};
constexpr std::chrono::seconds log_pause{10};
constexpr std::chrono::seconds keep_alive_pause{5};
constexpr std::chrono::milliseconds drain_poll{20};
constexpr std::chrono::seconds device_pause{3};
// What clients get to take their last bytes once the engine is done.
constexpr std::chrono::seconds flush_time{3};
constexpr std::size_t spare_files = 64;

// As many connections as the process may have open files, raised to what the system allows it.
std::size_t allowed_connections(std::size_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return wanted;
  const auto files = static_cast<std::size_t>(limit.rlim_cur);
  return std::min(wanted, files > 2 * spare_files ? files - spare_files : spare_files);
}

}  // namespace

class Server::Impl {
 public:
  Impl(ServerOptions options, EngineClient& engine, const ModelText& text)
      : options_(std::move(options)),
        engine_(&engine),
        metrics_(options_.facts, [&engine] { return engine.stats(); }),
        service_(io_, engine, text, metrics_, options_.api),
        acceptor_(io_),
        signals_(io_),
        accept_timer_(io_),
        log_timer_(io_),
        keep_alive_timer_(io_),
        drain_timer_(io_),
        device_timer_(io_) {
    options_.connection.connections = allowed_connections(options_.connection.connections);
    listen();
  }

  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

  bool run() {
    if (options_.handle_signals) {
      signals_.add(SIGTERM);
      signals_.add(SIGINT);
      wait_for_signal();
    }
    accept();
    log_throughput();
    keep_streams_alive();
    watch_device();
    io_.run();
    return clean_;
  }

  void drain() {
    asio::post(io_, [this] { begin_drain(); });
  }

 private:
  void listen() {
    NetworkError error;
    Tcp::resolver resolver(io_);
    const auto found =
        resolver.resolve(options_.host, std::to_string(options_.port),
                         Tcp::resolver::passive | Tcp::resolver::numeric_service, error);
    if (error || found.empty()) {
      throw_bad_input("--host {}: {}", printable(options_.host), error.message());
    }
    const Tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(Tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(backlog, error);
    if (error) {
      throw_bad_input("cannot listen on {} port {}: {}", printable(options_.host), options_.port,
                      error.message());
    }
  }

  void accept() {
    acceptor_.async_accept([this](const NetworkError& error, Tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) {
        // Out of files, most likely: a connection must end before the next can be had.
        accept_timer_.expires_after(retry_accept);
        accept_timer_.async_wait([this](const NetworkError& e) {
          if (!e) accept();
        });
        return;
      }
      take(std::move(socket));
      accept();
    });
  }

  void take(Tcp::socket socket) {
    if (counts_.open >= options_.connection.connections) {
      log_warning(
          fmt::format("a connection was refused: {} are open, as many as may be", counts_.open));
      return;
    }
    if (connections_.size() > 2 * counts_.open + 64) {
      std::erase_if(connections_, [](const auto& connection) { return connection.expired(); });
    }
    const auto connection =
        Connection::create(std::move(socket), service_, options_.connection, counts_);
    connections_.push_back(connection);
    connection->start();
  }

  void wait_for_signal() {
    signals_.async_wait([this](const NetworkError& error, int signal) {
      if (error) return;
      if (draining_) {
        log_warning("a second signal: ending at once");
        flush_log();
        std::_Exit(128 + signal);
      }
      begin_drain();
      wait_for_signal();
    });
  }

  void begin_drain() {
    if (std::exchange(draining_, true)) return;
    log_info(fmt::format("shutting down: {} requests have {:.1f} s to end", service_.unfinished(),
                         std::chrono::duration<double>(options_.grace_period).count()));
    service_.begin_drain();
    counts_.closing = true;
    for (const auto& weak : connections_) {
      if (const auto connection = weak.lock()) connection->close_if_idle();
    }
    const auto deadline = Clock::now() + options_.grace_period;
    last_moment_ = deadline + flush_time;
    engine_->drain(deadline, [this] {
      asio::post(io_, [this] {
        engine_done_ = true;
        last_moment_ = std::min(last_moment_, Clock::now() + flush_time);
      });
    });
    wait_for_end();
  }

  // New connections are still taken, and told that the server is shutting down, until all is done.
  void wait_for_end() {
    const bool done = engine_done_ && service_.unfinished() == 0 && counts_.open == 0;
    if (done || Clock::now() >= last_moment_) {
      clean_ = engine_done_ && !device_failed_;
      if (!engine_done_) log_error("the engine did not end within the grace period");
      return io_.stop();
    }
    if (engine_done_ && service_.unfinished() == 0) {
      for (const auto& weak : connections_) {
        if (const auto connection = weak.lock()) connection->close_if_idle();
      }
    }
    drain_timer_.expires_after(drain_poll);
    drain_timer_.async_wait([this](const NetworkError& error) {
      if (!error) wait_for_end();
    });
  }

  void log_throughput() {
    log_timer_.expires_after(log_pause);
    log_timer_.async_wait([this](const NetworkError& error) {
      if (error) return;
      const std::string line = throughput_.line(engine_->stats(), log_pause);
      if (!line.empty()) log_info(line);
      log_throughput();
    });
  }

  void keep_streams_alive() {
    keep_alive_timer_.expires_after(keep_alive_pause);
    keep_alive_timer_.async_wait([this](const NetworkError& error) {
      if (error) return;
      service_.keep_streams_alive();
      keep_streams_alive();
    });
  }

  // A device that failed stays so for the process: /health says it for a while, and then the
  // server ends with status 1, for its supervisor to start it anew.
  void watch_device() {
    device_timer_.expires_after(device_pause);
    device_timer_.async_wait([this](const NetworkError& error) {
      if (error) return;
      const EngineStats stats = engine_->stats();
      if (device_failed_) return begin_drain();
      if (stats.device_failed) {
        device_failed_ = true;
        log_error(fmt::format("the device failed, and the server ends: {}",
                              single_line(stats.unhealthy_reason)));
      }
      watch_device();
    });
  }

  ServerOptions options_;
  EngineClient* engine_;
  // What connections refer to until their handlers are gone, which io_ holds: these come first.
  ConnectionCounts counts_;
  asio::io_context io_{1};
  ServerMetrics metrics_;
  ApiService service_;
  Tcp::acceptor acceptor_;
  asio::signal_set signals_;
  asio::steady_timer accept_timer_;
  asio::steady_timer log_timer_;
  asio::steady_timer keep_alive_timer_;
  asio::steady_timer drain_timer_;
  asio::steady_timer device_timer_;
  std::vector<std::weak_ptr<Connection>> connections_;
  ThroughputLog throughput_;
  bool draining_ = false;
  bool engine_done_ = false;
  bool clean_ = true;
  bool device_failed_ = false;
  Clock::time_point last_moment_ = Clock::time_point::max();
};

Server::Server(ServerOptions options, EngineClient& engine, const ModelText& text)
    : impl_(std::make_unique<Impl>(std::move(options), engine, text)) {}
Server::~Server() = default;
std::uint16_t Server::port() const { return impl_->port(); }
bool Server::run() { return impl_->run(); }
void Server::drain() { impl_->drain(); }

}  // namespace octet
