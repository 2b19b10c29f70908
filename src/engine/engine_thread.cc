#include "engine/engine_thread.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/thread_name.h"

namespace octet {

const char* name_of(AbortReason reason) {
  switch (reason) {
    case AbortReason::client_left:
      return "the client left";
    case AbortReason::timed_out:
      return "the request ran out of time";
    case AbortReason::reader_too_slow:
      return "the client read too slowly";
    case AbortReason::shutting_down:
      return "the server is shutting down";
  }
  return "";
}

EngineThread::EngineThread(std::unique_ptr<Engine> engine, const EngineThreadOptions& options)
    : engine_(std::move(engine)), progress_(EngineClock::now()) {
  const std::int64_t running = limits().max_sequences;
  if (options.max_waiting < 0 ||
      options.max_waiting > std::numeric_limits<std::int64_t>::max() - running) {
    throw_bad_input("the queue's limit is {} requests, expected at least 0", options.max_waiting);
  }
  most_live_ = options.max_waiting + running;
  stats_ = engine_->stats();
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw_error(ErrorKind::out_of_memory, "cannot start the engine's thread: {}", error.what());
  }
}

EngineThread::~EngineThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    draining_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

SubmitResult EngineThread::submit(GenerateRequest request, TokenSink sink) {
  std::vector<Submission> one;
  one.push_back({std::move(request), std::move(sink)});
  return submit(std::move(one));
}

SubmitResult EngineThread::submit(std::vector<Submission> submissions) {
  for (const Submission& submission : submissions) engine_->check(submission.request);
  const auto count = static_cast<std::int64_t>(submissions.size());
  if (count > most_live_) {
    throw_bad_input("{} answers were asked for at once, and at most {} requests run or wait", count,
                    most_live_);
  }
  const EngineClock::time_point now = EngineClock::now();
  SubmitResult result;
  {
    const std::lock_guard lock(mutex_);
    if (!unhealthy_reason_.empty()) return {Admission::unhealthy, {}};
    if (draining_) return {Admission::draining, {}};
    const auto queued = static_cast<std::int64_t>(inbox_.submissions.size());
    if (count > most_live_ - live_ - queued) return {Admission::queue_full, {}};
    // All that can fail for want of memory comes before anything is taken.
    result.ids.reserve(submissions.size());
    inbox_.submissions.reserve(inbox_.submissions.size() + submissions.size());
    for (Submission& submission : submissions) {
      result.ids.push_back(next_id_);
      inbox_.submissions.push_back({next_id_++, std::move(submission), now});
    }
  }
  wake_.notify_all();
  return result;
}

void EngineThread::cancel(RequestId id, AbortReason reason) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.cancels.push_back({id, reason});
  }
  wake_.notify_all();
}

void EngineThread::drain(EngineClock::time_point deadline, std::function<void()> drained) {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    deadline_ = std::min(deadline_, deadline);
    if (drained) drained_.push_back(std::move(drained));
  }
  wake_.notify_all();
}

EngineStats EngineThread::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.waiting = live_ - stats.running + static_cast<std::int64_t>(inbox_.submissions.size());
  stats.draining = draining_;
  stats.healthy = unhealthy_reason_.empty();
  stats.unhealthy_reason = unhealthy_reason_;
  stats.device_failed = device_failed_;
  if (!idle_) {
    stats.seconds_since_progress =
        std::chrono::duration<double>(EngineClock::now() - progress_).count();
  }
  return stats;
}

void EngineThread::run() {
  name_this_thread("octet engine");
  const std::string shutting_down = name_of(AbortReason::shutting_down);
  for (bool more = true; more;) {
    more = wait_for_work();
    try {
      take_inbox();
      if (!more || deadline_passed()) {
        end_all(FinishReason::cancelled, shutting_down);
      } else {
        work();
      }
    } catch (const Error& error) {
      become_unhealthy(error.what(), error.kind() == ErrorKind::device);
    } catch (const std::exception& error) {
      become_unhealthy(error.what());
    } catch (...) {
      become_unhealthy("the model's step failed and gave no reason");
    }
    finish_drain();
  }
}

void EngineThread::work() {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    reason = unhealthy_reason_;
  }
  if (reason.empty()) {
    engine_->step(&events_);
    publish();
    deliver();
  } else {  // submitted just before
    end_all(FinishReason::error, reason);
  }
}

// False: the thread is to end.
bool EngineThread::wait_for_work() {
  std::unique_lock lock(mutex_);
  const bool busy = !engine_->idle();
  if (!busy) {
    idle_ = true;
    wake_.wait(lock, [this] { return stopping_ || !inbox_.empty() || !drained_.empty(); });
    // A step's time starts to count with the work, not with the end of the last.
    idle_ = false;
    progress_ = EngineClock::now();
  }
  return !stopping_;
}

void EngineThread::take_inbox() {
  {
    const std::lock_guard lock(mutex_);
    std::swap(inbox_, taken_);
    live_ += static_cast<std::int64_t>(taken_.submissions.size());
  }
  for (Incoming& incoming : taken_.submissions) {
    const RequestId id = incoming.id;
    sinks_.emplace(id, std::move(incoming.submission.sink));
    try {
      engine_->submit(id, std::move(incoming.submission.request), incoming.arrival);
    } catch (const std::exception& error) {  // no memory for it
      TokenEvent event;
      event.request = id;
      event.finished = FinishReason::error;
      event.message = error.what();
      events_.push_back(std::move(event));
    }
  }
  for (const Cancel& cancel : taken_.cancels) engine_->cancel(cancel.id, name_of(cancel.reason));
  taken_.clear();
}

void EngineThread::become_unhealthy(const std::string& reason, bool device_failed) {
  {
    const std::lock_guard lock(mutex_);
    device_failed_ = device_failed_ || device_failed;
    if (unhealthy_reason_.empty()) unhealthy_reason_ = reason.empty() ? "unknown" : reason;
  }
  end_all(FinishReason::error, reason);
}

// The events of a step that failed half-way come first: some requests ended in it.
void EngineThread::end_all(FinishReason reason, const std::string& message) {
  engine_->end_all(reason, message, &events_);
  publish();
  deliver();
}

void EngineThread::deliver() {
  const EngineClock::time_point start = EngineClock::now();
  for (TokenEvent& event : events_) {
    const auto found = sinks_.find(event.request);
    if (found == sinks_.end()) continue;
    const RequestId id = event.request;
    const bool ended = event.finished != FinishReason::none;
    try {
      found->second(std::move(event));
    } catch (...) {
      engine_->cancel(id, "the reader of the answer failed");
    }
    if (ended) sinks_.erase(found);
  }
  events_.clear();
  const double seconds = std::chrono::duration<double>(EngineClock::now() - start).count();
  const std::lock_guard lock(mutex_);
  stats_.times.deliver += seconds;
}

// Before what happened is delivered: whoever hears of an answer's end finds it counted, its pages
// free and its place in the queue too.
void EngineThread::publish() {
  EngineStats stats = engine_->stats();
  const std::lock_guard lock(mutex_);
  stats.times.deliver = stats_.times.deliver;
  stats_ = std::move(stats);
  live_ = stats_.running + stats_.waiting;
  idle_ = live_ == 0;
  progress_ = EngineClock::now();
}

bool EngineThread::deadline_passed() const {
  const std::lock_guard lock(mutex_);
  return draining_ && EngineClock::now() >= deadline_;
}

void EngineThread::finish_drain() {
  std::vector<std::function<void()>> drained;
  {
    const std::lock_guard lock(mutex_);
    if (!draining_ || !engine_->idle() || !inbox_.empty()) return;
    drained.swap(drained_);
  }
  for (const std::function<void()>& call : drained) call();
}

}  // namespace octet
