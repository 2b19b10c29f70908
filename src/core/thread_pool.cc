#include "core/thread_pool.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include <sched.h>

#include "core/error.h"
#include "core/thread_name.h"

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
// than most of them. So a worker looks for the next job, and the caller for the end of one, for
// about 50 us before it sleeps.
constexpr int spin_rounds = 2000;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Waits, first spinning, then asleep, until `variable` is no longer `value`.
template <typename T>
void wait_while(const std::atomic<T>& variable, T value) {
  for (int round = 0; round < spin_rounds; ++round) {
    if (variable.load() != value) return;
    pause_briefly();
  }
  variable.wait(value);
}

// The pool whose body this thread is in, and the thread's number there.
thread_local const ThreadPool* current_pool = nullptr;
thread_local int current_thread = 0;

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
  try {
    for (int thread = 1; thread < total; ++thread) {
      workers_.emplace_back([this, thread] { work(thread); });
    }
  } catch (const std::system_error& error) {
    stop();
    throw_error(ErrorKind::out_of_memory, "cannot start {} threads: {}", total, error.what());
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping_ = true;
  ++generation_;
  generation_.notify_all();
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

// The calling thread's share of a job. While it lasts, the thread is number 0 of this pool.
void ThreadPool::run_as_caller(Job& job) {
  const ThreadPool* outer_pool = std::exchange(current_pool, this);
  const int outer_thread = std::exchange(current_thread, 0);
  run(job, 0);  // throws nothing: errors are kept in the job
  current_pool = outer_pool;
  current_thread = outer_thread;
}

void ThreadPool::work(int thread) {
  name_this_thread("octet compute");
  current_pool = this;
  current_thread = thread;
  std::uint32_t seen = 0;
  for (;;) {
    wait_while(generation_, seen);
    seen = generation_;
    if (stopping_) return;
    ++active_workers_;
    if (Job* job = job_; job != nullptr) run(*job, thread);  // else it ended before we came
    if (--active_workers_ == 0) active_workers_.notify_one();
  }
}

void ThreadPool::parallel_for(std::int64_t count,
                              const std::function<void(std::int64_t, int)>& body) {
  if (count <= 0) return;
  Job job;
  job.count = count;
  job.body = &body;
  if (current_pool == this) {
    run(job, current_thread);
  } else if (count == 1 || workers_.empty()) {
    run_as_caller(job);
  } else {
    job_ = &job;
    ++generation_;
    generation_.notify_all();
    run_as_caller(job);
    job_ = nullptr;  // a worker that comes late finds nothing
    for (int active = active_workers_; active != 0; active = active_workers_) {
      wait_while(active_workers_, active);
    }
  }
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace octet
