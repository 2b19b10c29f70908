// The engine that the server really has.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine_thread.h"
#include "server/engine_client.h"

namespace octet {

class ThreadedEngineClient : public EngineClient {
 public:
  explicit ThreadedEngineClient(std::shared_ptr<EngineThread> engine)
      : engine_(std::move(engine)) {}
  SubmitResult submit(std::vector<Submission> submissions) override {
    return engine_->submit(std::move(submissions));
  }
  void cancel(RequestId id, AbortReason reason) override { engine_->cancel(id, reason); }
  void drain(EngineClock::time_point deadline, std::function<void()> drained) override {
    engine_->drain(deadline, std::move(drained));
  }
  EngineStats stats() const override { return engine_->stats(); }

 private:
  std::shared_ptr<EngineThread> engine_;
};

}  // namespace octet
