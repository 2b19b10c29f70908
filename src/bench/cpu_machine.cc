#include "bench/cpu_machine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <vector>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/parallel.h"

namespace octet {
namespace {

double seconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

MultiplyAddChains* chains_for(const OpContext& context) {
  if constexpr (has_avx2_kernels) {
    const InstructionSet set = context.instruction_set;
    if (set == InstructionSet::avx512_bf16 && context.arithmetic == Arithmetic::bfloat16) {
      return multiply_add_chains_avx512_bf16;
    }
    if (set >= InstructionSet::avx512) return multiply_add_chains_avx512;
    if (set == InstructionSet::avx2) return multiply_add_chains_avx2;
  }
  if (context.instruction_set == InstructionSet::portable) return multiply_add_chains_portable;
  throw_no_kernel("bench", context.instruction_set);
}

// Larger than any cache of a few cores, small enough to be there in a moment.
constexpr std::size_t buffer_bytes = std::size_t{256} << 20;

std::uint64_t sum_of(const std::uint64_t* words, std::size_t count) {
  std::uint64_t sums[16] = {};
  for (std::size_t i = 0; i + 16 <= count; i += 16) {
    for (std::size_t j = 0; j < 16; ++j) sums[j] += words[i + j];
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t part : sums) sum += part;
  return sum;
}

double read_rate(const OpContext& context) {
  const std::vector<std::uint64_t> buffer(buffer_bytes / sizeof(std::uint64_t), 1);
  const int threads = thread_count(context);
  const std::size_t part = buffer.size() / static_cast<std::size_t>(threads);
  std::atomic<std::uint64_t> sink{0};
  double best = 0;
  for (int run = 0; run < 5; ++run) {
    const double seconds = seconds_of([&] {
      context.pool->parallel_for(threads, [&](std::int64_t index, int) {
        sink += sum_of(buffer.data() + static_cast<std::size_t>(index) * part, part);
      });
    });
    best = std::max(best, static_cast<double>(buffer_bytes) / seconds / 1e9);
  }
  return best;
}

double multiply_add_rate(const OpContext& context, MultiplyAddChains* chains) {
  constexpr std::int64_t rounds = 300'000;
  const int threads = thread_count(context);
  double best = 0;
  for (int run = 0; run < 7; ++run) {
    std::atomic<double> operations{0};
    const double seconds = seconds_of([&] {
      context.pool->parallel_for(threads, [&](std::int64_t, int) {
        volatile float sink = 1.0f;
        float sum = sink;
        const double done = chains(rounds, &sum);
        sink = sum;
        operations.fetch_add(done);
      });
    });
    best = std::max(best, operations.load() / seconds / 1e9);
  }
  return best;
}

}  // namespace

CpuRates measure_cpu_rates(const OpContext& context) {
  CpuRates rates = {.read_gb_per_s = read_rate(context),
                    .multiply_add_gflops = multiply_add_rate(context, chains_for(context))};
  if constexpr (has_avx2_kernels) {
    const bool integers =
        context.arithmetic == Arithmetic::int16 || context.arithmetic == Arithmetic::int8;
    if (integers && context.instruction_set != InstructionSet::portable) {
      const bool wide = context.instruction_set == InstructionSet::avx512_bf16;
      rates.int16_gops = multiply_add_rate(
          context, wide ? multiply_add_chains_int16_avx512_bf16 : multiply_add_chains_int16_avx2);
    }
  }
  return rates;
}

}  // namespace octet
