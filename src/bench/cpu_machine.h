// What this machine's CPU can do at most: the limits that CPU speeds are told beside.
#pragma once

#include <cstdint>

#include "ops/context.h"

namespace octet {

struct CpuRates {
  double read_gb_per_s = 0;  // bytes read from memory by all threads of the pool, 1e9 a second
  // Multiply-adds in registers on all threads, 2 operations each, 1e9 a second: float32, or pairs
  // of bfloat16 where the instruction set multiplies those and the arithmetic asks for it.
  double multiply_add_gflops = 0;
  // Of pairs of 16-bit integers, where the arithmetic is int16 or int8; else 0.
  double int16_gops = 0;
};

// Takes about 0.3 s. Best of several short runs: a limit, so a disturbed run does not count.
CpuRates measure_cpu_rates(const OpContext& context);

// Runs chains of multiply-adds in registers, `rounds` times; gives the operations done (2 a
// multiply-add) and adds the chains' sum to `sink`, so that none is left out.
using MultiplyAddChains = double(std::int64_t rounds, float* sink);
MultiplyAddChains multiply_add_chains_portable;
// x86-64 builds alone (ops/cpu/dispatch.h):
MultiplyAddChains multiply_add_chains_avx2;
MultiplyAddChains multiply_add_chains_int16_avx2;
MultiplyAddChains multiply_add_chains_int16_avx512_bf16;
MultiplyAddChains multiply_add_chains_avx512;
MultiplyAddChains multiply_add_chains_avx512_bf16;

}  // namespace octet
