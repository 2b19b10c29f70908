// An engine that answers as a test tells it, behind the interface that the server knows.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/engine_client.h"

namespace octet {
inline namespace test_support {

// Gives every request it has a token at each tick, on a thread of its own, until max_tokens; the
// text of a token is `token_text`. Requests beyond `most_requests` are refused as a full queue's.
class FakeEngine : public EngineClient {
 public:
  explicit FakeEngine(std::chrono::milliseconds tick = std::chrono::milliseconds(1)) : tick_(tick) {
    thread_ = std::thread([this] { run(); });
  }
  ~FakeEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  // Set before the first request.
  std::string token_text = "ab ";
  TokenId token = 5;
  std::size_t most_requests = 1u << 20;
  std::int64_t cached_tokens = 0;
  bool with_logprobs = false;

  SubmitResult submit(std::vector<Submission> submissions) override {
    const std::lock_guard lock(mutex_);
    SubmitResult result;
    if (draining_) {
      result.admission = Admission::draining;
    } else if (!unhealthy_.empty()) {
      result.admission = Admission::unhealthy;
    } else if (requests_.size() + submissions.size() > most_requests) {
      result.admission = Admission::queue_full;
    }
    if (result.admission != Admission::accepted) return result;
    for (Submission& submission : submissions) {
      Running running;
      running.request = std::move(submission.request);
      running.sink = std::move(submission.sink);
      running.arrival = EngineClock::now();
      seen_.push_back(running.request);
      result.ids.push_back(next_id_);
      requests_.emplace(next_id_++, std::move(running));
    }
    wake_.notify_all();
    return result;
  }

  void cancel(RequestId id, AbortReason reason) override {
    const std::lock_guard lock(mutex_);
    cancels_.emplace_back(id, reason);
    wake_.notify_all();
  }

  void drain(EngineClock::time_point deadline, std::function<void()> drained) override {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    deadline_ = deadline;
    drained_ = std::move(drained);
    wake_.notify_all();
  }

  EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    EngineStats stats;
    stats.running = static_cast<std::int64_t>(requests_.size());
    stats.healthy = unhealthy_.empty();
    stats.unhealthy_reason = unhealthy_;
    stats.device_failed = device_failed_;
    stats.seconds_since_progress = since_progress_;
    stats.draining = draining_;
    return stats;
  }

  // What a test sets and asks.
  void pause(bool paused) {
    const std::lock_guard lock(mutex_);
    paused_ = paused;
    wake_.notify_all();
  }
  void set_unhealthy(std::string reason) {
    const std::lock_guard lock(mutex_);
    unhealthy_ = std::move(reason);
  }
  void fail_device(std::string reason) {
    const std::lock_guard lock(mutex_);
    unhealthy_ = std::move(reason);
    device_failed_ = true;
  }
  void set_since_progress(double seconds) {
    const std::lock_guard lock(mutex_);
    since_progress_ = seconds;
  }
  std::size_t running() const {
    const std::lock_guard lock(mutex_);
    return requests_.size();
  }
  std::vector<GenerateRequest> seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  std::vector<AbortReason> cancelled() const {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }

 private:
  struct Running {
    GenerateRequest request;
    TokenSink sink;
    std::int64_t generated = 0;
    EngineClock::time_point arrival;
    EngineClock::time_point first_token;
  };

  TokenEvent event_of(RequestId id, const Running& running) const {
    TokenEvent event;
    event.request = id;
    event.prompt_tokens = static_cast<std::int64_t>(running.request.prompt.size());
    event.cached_tokens = cached_tokens;
    event.generated_tokens = running.generated;
    event.times = {running.arrival, running.arrival, running.first_token};
    return event;
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait_for(lock, tick_, [this] { return stopping_ || !cancels_.empty(); });
      if (stopping_) break;
      std::vector<std::pair<TokenSink, TokenEvent>> out;
      for (const auto& [id, reason] : std::exchange(cancels_, {})) end(id, reason, &out);
      if (draining_ && EngineClock::now() >= deadline_) {
        while (!requests_.empty()) end(requests_.begin()->first, AbortReason::shutting_down, &out);
      }
      if (!paused_) step(&out);
      std::function<void()> drained;
      if (draining_ && requests_.empty()) drained = std::exchange(drained_, nullptr);
      lock.unlock();
      for (auto& [sink, event] : out) sink(std::move(event));
      out.clear();
      if (drained) drained();
      lock.lock();
      if (!paused_) wake_.wait_for(lock, tick_, [this] { return stopping_ || !cancels_.empty(); });
    }
    requests_.clear();
  }

  void end(RequestId id, AbortReason reason, std::vector<std::pair<TokenSink, TokenEvent>>* out) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return;
    TokenEvent event = event_of(id, found->second);
    event.finished = FinishReason::cancelled;
    event.message = name_of(reason);
    out->emplace_back(std::move(found->second.sink), std::move(event));
    requests_.erase(found);
    cancelled_.push_back(reason);
  }

  void step(std::vector<std::pair<TokenSink, TokenEvent>>* out) {
    for (auto it = requests_.begin(); it != requests_.end();) {
      Running& running = it->second;
      if (running.generated == 0) running.first_token = EngineClock::now();
      ++running.generated;
      TokenEvent event = event_of(it->first, running);
      event.token = token;
      event.text = token_text;
      if (running.request.sampling.logprobs >= 0) event.logprobs = TokenLogprobs{-0.5f, {}};
      const bool last = running.generated >= running.request.sampling.max_tokens;
      if (last) event.finished = FinishReason::length;
      out->emplace_back(running.sink, std::move(event));
      it = last ? requests_.erase(it) : std::next(it);
    }
  }

  std::chrono::milliseconds tick_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<RequestId, Running> requests_;
  std::vector<std::pair<RequestId, AbortReason>> cancels_;
  std::vector<GenerateRequest> seen_;
  std::vector<AbortReason> cancelled_;
  RequestId next_id_ = 1;
  bool paused_ = false;
  bool stopping_ = false;
  bool draining_ = false;
  EngineClock::time_point deadline_;
  std::function<void()> drained_;
  std::string unhealthy_;
  bool device_failed_ = false;
  double since_progress_ = 0;
  std::thread thread_;
};

}  // namespace test_support
}  // namespace octet
