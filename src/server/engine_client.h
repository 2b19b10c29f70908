// What the server needs of an engine: EngineThread's interface, so that the protocol's tests can
// stand an engine of their own behind it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/engine_thread.h"

namespace octet {

// The contract of each function is EngineThread's.
class EngineClient {
 public:
  virtual ~EngineClient() = default;
  virtual SubmitResult submit(std::vector<Submission> submissions) = 0;
  virtual void cancel(RequestId id, AbortReason reason) = 0;
  virtual void drain(EngineClock::time_point deadline, std::function<void()> drained) = 0;
  virtual EngineStats stats() const = 0;
};

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
