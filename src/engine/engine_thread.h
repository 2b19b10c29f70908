// The engine behind one thread of its own: requests in from any thread, events out to sinks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/submission.h"

namespace octet {

struct EngineThreadOptions {
  // Requests that may wait beside those that run (SchedulerLimits::max_sequences).
  std::int64_t max_waiting = 1024;
};

// Between the callers and the thread stand a queue of submissions and cancels, which the thread
// empties before each step, and a copy of the statistics, which it replaces after each; nothing
// else is shared. An exception from the model or the device makes the engine unhealthy: every
// request ends with FinishReason::error and its message, and none is accepted any more; the process
// goes on.
class EngineThread {
 public:
  // Throws Error{bad_input} for a limit below 0.
  explicit EngineThread(std::unique_ptr<Engine> engine, const EngineThreadOptions& options = {});
  // Cancels what is left, with last events, and ends the thread.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  // All that follows may be called by any thread, sinks among them, and returns at once.

  // All of them or none (the n answers to one prompt). Throws Error{bad_input} that names what is
  // wrong with a request, or where there are more than could ever wait, before it has taken any.
  SubmitResult submit(std::vector<Submission> submissions);
  SubmitResult submit(GenerateRequest request, TokenSink sink);

  // Ends a request and frees its pages before the next step, whether it waits, reads its prompt or
  // answers. Ids that have ended are ignored.
  void cancel(RequestId id, AbortReason reason);

  // No more admission. What runs or waits goes on until `deadline` and is then cancelled, with last
  // events. `drained` is called once on the engine's thread, when nothing is left. A second call
  // can only bring the deadline forward.
  void drain(EngineClock::time_point deadline, std::function<void()> drained = {});

  EngineStats stats() const;

  // What never changes: the model's configuration, the cache's policy and layout, the context's
  // length, the machine. Its runner and what its pool counts belong to the engine's thread.
  const EngineCore& core() const { return engine_->core(); }
  const SchedulerLimits& limits() const { return engine_->scheduler().limits(); }

 private:
  struct Incoming {
    RequestId id = 0;
    Submission submission;
    EngineClock::time_point arrival;
  };
  struct Cancel {
    RequestId id = 0;
    AbortReason reason = AbortReason::client_left;
  };
  struct Inbox {
    std::vector<Incoming> submissions;
    std::vector<Cancel> cancels;
    bool empty() const { return submissions.empty() && cancels.empty(); }
    void clear() {
      submissions.clear();
      cancels.clear();
    }
  };

  void run();
  bool wait_for_work();
  void work();
  void take_inbox();
  void become_unhealthy(const std::string& reason, bool device_failed = false);
  void end_all(FinishReason reason, const std::string& message);
  void deliver();
  void publish();
  bool deadline_passed() const;
  void finish_drain();

  // The engine's thread alone, but for what check() and core() allow.
  std::unique_ptr<Engine> engine_;
  std::unordered_map<RequestId, TokenSink> sinks_;
  Inbox taken_;
  std::vector<TokenEvent> events_;  // not yet delivered

  // Under the mutex.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Inbox inbox_;
  RequestId next_id_ = 1;
  std::int64_t live_ = 0;  // requests in the engine, or just taken there
  std::int64_t most_live_;
  bool draining_ = false;
  bool stopping_ = false;
  bool idle_ = true;
  EngineClock::time_point deadline_ = EngineClock::time_point::max();
  std::vector<std::function<void()>> drained_;
  std::string unhealthy_reason_;
  bool device_failed_ = false;
  EngineStats stats_;
  EngineClock::time_point progress_;

  std::thread thread_;
};

}  // namespace octet
