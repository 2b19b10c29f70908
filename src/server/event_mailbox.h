// The way of the engine's events to the I/O thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/request.h"
#include "server/asio.h"

namespace octet {

// Where an event belongs: an answer is known by number, since the engine's thread may hold the last
// trace of it, and must not be the one to destroy it.
struct AnswerKey {
  std::uint64_t generation = 0;
  int choice = 0;
};

class EventMailbox : public std::enable_shared_from_this<EventMailbox> {
 public:
  using Receiver = std::function<void(const AnswerKey&, TokenEvent&&)>;

  // `receiver` is called by the thread that runs `io`, which outlives the mailbox.
  EventMailbox(asio::io_context& io, Receiver receiver)
      : io_(&io), receiver_(std::move(receiver)) {}

  // Any thread; returns at once. A step's events wake the I/O thread once, not once each.
  void put(const AnswerKey& key, TokenEvent&& event) {
    const std::lock_guard lock(mutex_);
    if (io_ == nullptr) return;
    waiting_.push_back({key, std::move(event)});
    if (posted_) return;
    posted_ = true;
    asio::post(*io_, [self = shared_from_this()] { self->empty(); });
  }

  // Events that come later are dropped; to be called before `io` or the receiver's owner ends.
  void close() {
    const std::lock_guard lock(mutex_);
    io_ = nullptr;
  }

 private:
  struct Item {
    AnswerKey key;
    TokenEvent event;
  };

  void empty() {
    {
      const std::lock_guard lock(mutex_);
      posted_ = false;
      taken_.swap(waiting_);
    }
    for (Item& item : taken_) receiver_(item.key, std::move(item.event));
    taken_.clear();
  }

  asio::io_context* io_;
  Receiver receiver_;
  std::mutex mutex_;
  std::vector<Item> waiting_;
  bool posted_ = false;
  std::vector<Item> taken_;  // of the I/O thread
};

}  // namespace octet
