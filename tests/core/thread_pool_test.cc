#include "core/thread_pool.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

namespace octet {
namespace {

class ThreadPoolOfSize : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolOfSize, RunsEveryIndexOnce) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.size(), GetParam());
  for (const std::int64_t count : {0, 1, 2, 3, 7, 64, 1000, 100'000}) {
    // Plain integers: the end of parallel_for must make every thread's writes visible.
    std::vector<int> calls(static_cast<std::size_t>(count), 0);
    std::atomic<bool> thread_in_range = true;
    pool.parallel_for(count, [&](std::int64_t index, int thread) {
      ++calls[static_cast<std::size_t>(index)];
      if (thread < 0 || thread >= pool.size()) thread_in_range = false;
    });
    EXPECT_EQ(calls, std::vector<int>(static_cast<std::size_t>(count), 1)) << count;
    EXPECT_TRUE(thread_in_range);
  }
}

TEST_P(ThreadPoolOfSize, NoTwoThreadsShareANumber) {
  ThreadPool pool(GetParam());
  // Scratch without locks, one per number, as the ops use it.
  std::vector<std::int64_t> sums(static_cast<std::size_t>(pool.size()), 0);
  constexpr std::int64_t count = 50'000;
  pool.parallel_for(count, [&](std::int64_t index, int thread) {
    sums[static_cast<std::size_t>(thread)] += index;
  });
  std::int64_t total = 0;
  for (const std::int64_t sum : sums) total += sum;
  EXPECT_EQ(total, count * (count - 1) / 2);
}

TEST_P(ThreadPoolOfSize, ManyQuickJobsOneAfterAnother) {
  ThreadPool pool(GetParam());
  std::vector<std::int64_t> values(5, 0);
  constexpr int jobs = 20'000;
  for (int job = 0; job < jobs; ++job) {
    pool.parallel_for(5, [&](std::int64_t index, int) {
      values[static_cast<std::size_t>(index)] += index + 1;  // races unless jobs end in full
    });
  }
  for (std::int64_t index = 0; index < 5; ++index) {
    EXPECT_EQ(values[static_cast<std::size_t>(index)], jobs * (index + 1));
  }
}

TEST_P(ThreadPoolOfSize, WakesWorkersThatFellAsleep) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // far longer than they spin
    // Each index waits until as many are running as there are threads: it ends only if all woke.
    std::atomic<int> running = 0;
    pool.parallel_for(pool.size(), [&](std::int64_t, int) {
      ++running;
      while (running < pool.size()) std::this_thread::yield();
    });
    EXPECT_EQ(running, pool.size());
  }
}

TEST_P(ThreadPoolOfSize, WaitsForASlowLastIndex) {
  ThreadPool pool(GetParam());
  std::vector<int> done(static_cast<std::size_t>(pool.size()) * 2, 0);
  pool.parallel_for(static_cast<std::int64_t>(done.size()), [&](std::int64_t index, int) {
    if (index % 2 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    done[static_cast<std::size_t>(index)] = 1;
  });
  EXPECT_EQ(done, std::vector<int>(done.size(), 1));
}

TEST_P(ThreadPoolOfSize, RethrowsTheFirstExceptionAndStaysUsable) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> calls = 0;
    EXPECT_THROW(pool.parallel_for(1000,
                                   [&](std::int64_t index, int) {
                                     ++calls;
                                     if (index == 10) throw std::runtime_error("index 10");
                                   }),
                 std::runtime_error);
    EXPECT_GE(calls, 11);
    EXPECT_LE(calls, 1000);
    std::atomic<int> after = 0;
    pool.parallel_for(100, [&](std::int64_t, int) { ++after; });
    EXPECT_EQ(after, 100);
  }
}

TEST_P(ThreadPoolOfSize, SurvivesEveryBodyThrowing) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 200; ++round) {
    EXPECT_THROW(pool.parallel_for(50, [](std::int64_t, int) { throw std::logic_error("all"); }),
                 std::logic_error);
  }
}

TEST_P(ThreadPoolOfSize, ACallFromABodyRunsOnItsThread) {
  ThreadPool pool(GetParam());
  for (const std::int64_t inner : {0, 1, 100}) {
    constexpr std::int64_t outer = 64;
    std::vector<std::int64_t> counts(outer, 0);
    std::atomic<bool> same_thread = true;
    pool.parallel_for(outer, [&](std::int64_t index, int thread) {
      pool.parallel_for(inner, [&](std::int64_t, int inner_thread) {
        ++counts[static_cast<std::size_t>(index)];
        if (inner_thread != thread) same_thread = false;
      });
    });
    EXPECT_EQ(counts, std::vector<std::int64_t>(outer, inner));
    EXPECT_TRUE(same_thread);
  }
}

TEST_P(ThreadPoolOfSize, AnInnerExceptionReachesTheOuterCaller) {
  ThreadPool pool(GetParam());
  EXPECT_THROW(pool.parallel_for(8,
                                 [&](std::int64_t, int) {
                                   pool.parallel_for(8, [](std::int64_t index, int) {
                                     if (index == 3) throw std::out_of_range("inner");
                                   });
                                 }),
               std::out_of_range);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPoolOfSize, testing::Values(1, 2, 3, 8));

TEST(ThreadPool, StartsAndStopsManyTimes) {
  for (int round = 0; round < 200; ++round) {
    ThreadPool pool(3);
    std::atomic<int> calls = 0;
    if (round % 2 == 0) pool.parallel_for(4, [&](std::int64_t, int) { ++calls; });
    EXPECT_EQ(calls, round % 2 == 0 ? 4 : 0);
  }
}

TEST(ThreadPool, TwoPoolsNest) {
  ThreadPool outer(2);
  std::atomic<int> calls = 0;
  outer.parallel_for(4, [&](std::int64_t, int) {
    ThreadPool inner(2);
    inner.parallel_for(8, [&](std::int64_t, int) { ++calls; });
  });
  EXPECT_EQ(calls, 32);
}

TEST(ThreadPool, ZeroMeansTheCpusThatTheProcessMayUse) {
  EXPECT_EQ(ThreadPool(0).size(), ThreadPool::available_cpus());
}

TEST(ThreadPool, AvailableCpusFollowTheAffinityMask) {
  cpu_set_t before;
  CPU_ZERO(&before);
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_GE(ThreadPool::available_cpus(), 1);
  EXPECT_LE(ThreadPool::available_cpus(), CPU_COUNT(&before));

  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(ThreadPool::available_cpus(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace octet
