// What the server needs of an engine: EngineThread's interface, so that the protocol's tests can
// stand an engine of their own behind it.
#pragma once

#include <functional>
#include <vector>

#include "engine/engine_stats.h"
#include "engine/submission.h"

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

}  // namespace octet
