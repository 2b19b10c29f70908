#include "core/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <fstream>
#include <string>

namespace octet {

struct ThreadPool::Job {
  std::int64_t count = 0;
  const std::function<void(std::int64_t, int)>* body = nullptr;
  std::atomic<std::int64_t> next{0};
  std::mutex error_mutex;
  std::exception_ptr error;
};

namespace {

// A decode step hands out hundreds of jobs, microseconds apart: waking a sleeping thread costs more
// than most of them. So a worker looks for the next job for about 50 us before it sleeps.
constexpr int spin_rounds = 2000;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// The CPU quota of the process's cgroup v2 in CPUs, or 0 where there is none.
double cgroup_cpu_quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  try {
    return std::stod(quota) / period;
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace

int ThreadPool::available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus = static_cast<int>(std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cpus = CPU_COUNT(&set);
  const double quota = cgroup_cpu_quota();
  if (quota > 0) cpus = std::min(cpus, static_cast<int>(std::ceil(quota)));
  return std::max(cpus, 1);
}

ThreadPool::ThreadPool(int threads) {
  const int total = threads > 0 ? threads : available_cpus();
  workers_.reserve(static_cast<std::size_t>(total - 1));
  for (int thread = 1; thread < total; ++thread) {
    workers_.emplace_back([this, thread] { work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(Job& job, int thread) {
  for (;;) {
    const std::int64_t index = job.next.fetch_add(1, std::memory_order_relaxed);
    if (index >= job.count) return;
    try {
      (*job.body)(index, thread);
    } catch (...) {
      const std::lock_guard lock(job.error_mutex);
      if (!job.error) job.error = std::current_exception();
      job.next.store(job.count, std::memory_order_relaxed);
    }
  }
}

void ThreadPool::work(int thread) {
  std::uint64_t seen = 0;
  for (;;) {
    for (int round = 0; round < spin_rounds; ++round) {
      if (generation_.load(std::memory_order_acquire) != seen) break;
      pause_briefly();
    }
    Job* job = nullptr;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return generation_.load(std::memory_order_relaxed) != seen; });
      seen = generation_.load(std::memory_order_relaxed);
      if (stopping_) return;
      job = job_;
      if (job == nullptr) continue;  // the job ended before this worker came
      ++active_workers_;
    }
    run(*job, thread);
    {
      const std::lock_guard lock(mutex_);
      --active_workers_;
    }
    finished_.notify_one();
  }
}

void ThreadPool::parallel_for(std::int64_t count,
                              const std::function<void(std::int64_t, int)>& body) {
  if (count <= 0) return;
  Job job;
  job.count = count;
  job.body = &body;
  const bool share = count > 1 && !workers_.empty();
  if (share) {
    {
      const std::lock_guard lock(mutex_);
      job_ = &job;
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
  }
  run(job, 0);
  if (share) {
    std::unique_lock lock(mutex_);
    job_ = nullptr;  // a worker that comes late finds nothing
    finished_.wait(lock, [&] { return active_workers_ == 0; });
  }
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace octet
