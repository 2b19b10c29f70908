// A few threads for work that would hold up the I/O thread: parsing and tokenizing requests.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace octet {

class Worker {
 public:
  explicit Worker(int threads);
  // Drops the jobs that have not begun, and waits for those that have.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Runs `job` on one of the threads, in the order of the calls. It must not throw. Any thread may
  // call this; how many jobs wait is for the caller to bound.
  void add(std::function<void()> job);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace octet
