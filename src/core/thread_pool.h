// The worker pool under the CPU ops.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace octet {

// Runs index ranges on a fixed set of threads, the caller among them. One caller at a time: the
// engine thread. Which thread runs which index is not fixed, so work items must not depend on it.
class ThreadPool {
 public:
  // `threads` counts the caller; 0 means available_cpus().
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(index, thread) for every index in [0, count) and returns when all are done.
  // `thread` is in [0, size()) and names the scratch that the call may use. The first exception
  // that a body throws is rethrown here, after all threads have stopped working.
  void parallel_for(std::int64_t count, const std::function<void(std::int64_t, int)>& body);

  // CPUs that this process may use: its affinity mask, lessened by a cgroup v2 CPU quota.
  static int available_cpus();

 private:
  struct Job;
  void work(int thread);
  static void run(Job& job, int thread);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable finished_;
  Job* job_ = nullptr;
  std::atomic<std::uint64_t> generation_{0};
  int active_workers_ = 0;
  bool stopping_ = false;
};

}  // namespace octet
