// The worker pool under the CPU ops.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace octet {

// Runs index ranges on a fixed set of threads, the caller among them. One caller at a time: the
// engine thread. Which thread runs which index is not fixed, so work items must not depend on it.
class ThreadPool {
 public:
  // `threads` counts the caller; 0 means available_cpus(). Throws Error{out_of_memory} where the
  // system does not give that many threads.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(index, thread) for every index in [0, count) and returns when all are done.
  // `thread` is in [0, size()) and names the scratch that the call may use. The first exception
  // that a body throws is rethrown here, after all threads have stopped working; indices that were
  // not begun by then are not begun at all. A call from within a body runs on the thread that makes
  // it, whose number its bodies get.
  void parallel_for(std::int64_t count, const std::function<void(std::int64_t, int)>& body);

  // CPUs that this process may use: its affinity mask, lessened by a cgroup v2 CPU quota.
  static int available_cpus();

 private:
  struct Job;
  void work(int thread);
  void run_as_caller(Job& job);
  static void run(Job& job, int thread);
  void stop();

  std::vector<std::thread> workers_;
  // A worker first counts itself in, then looks for a job; the caller first takes the job away,
  // then waits for the count to be 0. Both in sequentially consistent order, so that either the
  // worker finds no job or the caller waits for it.
  std::atomic<Job*> job_{nullptr};
  std::atomic<std::uint32_t> generation_{0};  // grows by 1 with each job: what workers wait for
  std::atomic<int> active_workers_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace octet
