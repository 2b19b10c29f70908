// The server: a port, an engine, and one thread that runs all input and output.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "server/api_options.h"
#include "server/connection.h"
#include "server/engine_client.h"
#include "server/metrics.h"
#include "server/model_text.h"

namespace octet {

struct ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;  // 0: any that is free
  ConnectionLimits connection;
  ApiOptions api;
  ServedModelFacts facts;
  // How long running requests may go on after SIGTERM or SIGINT.
  std::chrono::milliseconds grace_period{30'000};
  bool handle_signals = true;
};

class Server {
 public:
  // Binds the port. Throws Error{bad_input} where the address cannot be had. `engine` and `text`
  // outlive the server.
  Server(ServerOptions options, EngineClient& engine, const ModelText& text);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const;

  // Serves until drain() or a signal, and then until what was running is answered. False where that
  // could not be waited for: the engine did not end its step within the grace period, and whoever
  // waits for its thread may wait long. A second signal ends the process at once, with status
  // 128 + the signal.
  bool run();

  // What the first signal does. Any thread may call it, also before run().
  void drain();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace octet
