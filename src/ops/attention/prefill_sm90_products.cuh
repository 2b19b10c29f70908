// The tensor core's work in the prefill kernel: scores, and sums of values. Internal to
// src/ops/attention.
#pragma once

#include <type_traits>

#include <cuda_runtime.h>

#include "core/cuda/ptx.cuh"
#include "core/cuda/wgmma_e4m3.cuh"
#include "core/cuda/wgmma_int8.cuh"
#include "ops/attention/prefill_sm90_shared.cuh"

namespace octet {

// What rows of a warpgroup add up: their outputs, and after the last chunk's the row sums' terms.
template <typename Config>
struct PrefillSums {
  float output[Config::chunks > 1 ? Config::chunks - 1 : 1][32];
  float last_output[Config::last_registers];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int chunk = 0; chunk < Config::chunks - 1; ++chunk) {
#pragma unroll
      for (int i = 0; i < 32; ++i) output[chunk][i] = 0;
    }
#pragma unroll
    for (int i = 0; i < Config::last_registers; ++i) last_output[i] = 0;
  }
  // alpha: of the thread's two rows; nearly always 1.
  __device__ __forceinline__ void rescale(const float (&alpha)[2]) {
    if (!__any_sync(~0u, alpha[0] != 1 || alpha[1] != 1)) return;
#pragma unroll
    for (int chunk = 0; chunk < Config::chunks - 1; ++chunk) {
#pragma unroll
      for (int i = 0; i < 32; ++i) output[chunk][i] *= alpha[i / 2 % 2];
    }
#pragma unroll
    for (int i = 0; i < Config::last_registers; ++i) last_output[i] *= alpha[i / 2 % 2];
  }
};

// A descriptor's low word is all that changes.

__device__ __forceinline__ std::uint64_t descriptor(std::uint64_t first, std::uint32_t bytes) {
  return first + (bytes >> 4);
}

// A tile's scores as the tensor core leaves them: float16 of two neighbouring columns, or exact
// 32-bit sums of int8 products.
template <typename Config>
using PrefillScores =
    std::conditional_t<Config::keys == PrefillKeys::int8, std::int32_t[64], std::uint32_t[32]>;

template <typename Query>
__device__ __forceinline__ void multiply_step(std::uint32_t (&scores)[32], const Query& query,
                                              std::uint64_t keys, bool accumulate) {
  ptx::wgmma_e4m3_float16(scores, query, keys, accumulate);
}
template <typename Query>
__device__ __forceinline__ void multiply_step(std::int32_t (&scores)[64], const Query& query,
                                              std::uint64_t keys, bool accumulate) {
  ptx::wgmma_int8(scores, query, keys, accumulate);
}

// Scores of rows in shared memory, and of rows in registers.
template <typename Config>
__device__ __forceinline__ void multiply_keys(const PrefillShared<Config>& shared, int group,
                                              int stage, PrefillScores<Config>& scores) {
  const std::uint64_t query = ptx::matrix_descriptor<Config::panel_row>(shared.query[group]);
  const std::uint64_t keys = descriptor(ptx::matrix_descriptor<Config::panel_row>(shared.keys[0]),
                                        static_cast<std::uint32_t>(stage) * sizeof(shared.keys[0]));
#pragma unroll
  for (int step = 0; step < Config::query_steps; ++step) {
    const int panel = 32 * step / Config::panel_row;
    const int within = 32 * step % Config::panel_row;
    multiply_step(scores, descriptor(query, panel * 64 * Config::panel_row + within),
                  descriptor(keys, panel * 128 * Config::panel_row + within), step > 0);
  }
}
template <typename Config>
__device__ __forceinline__ void multiply_keys(const PrefillShared<Config>& shared, int stage,
                                              const std::uint32_t (&query)[Config::query_steps][4],
                                              PrefillScores<Config>& scores) {
  const std::uint64_t keys = descriptor(ptx::matrix_descriptor<Config::panel_row>(shared.keys[0]),
                                        static_cast<std::uint32_t>(stage) * sizeof(shared.keys[0]));
#pragma unroll
  for (int step = 0; step < Config::query_steps; ++step) {
    multiply_step(scores, query[step], descriptor(keys, 32 * step), step > 0);
  }
}

template <typename Config>
__device__ __forceinline__ std::uint64_t values_of(const PrefillShared<Config>& shared, int stage,
                                                   int chunk, int step) {
  const std::uint64_t values =
      descriptor(ptx::matrix_descriptor<64>(shared.values[0][0]),
                 static_cast<std::uint32_t>(stage) * sizeof(shared.values[0]) + chunk * 64 * 64);
  return descriptor(values, step / 2 * Config::value_page_bytes + step % 2 * 32);
}

template <typename Config, int registers>
__device__ __forceinline__ void multiply_values(const PrefillShared<Config>& shared, int stage,
                                                int chunk, const std::uint32_t (&weights)[4][4],
                                                float (&products)[registers]) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    ptx::wgmma_e4m3(products, weights[step], values_of(shared, stage, chunk, step), step > 0);
  }
}
// The same with weights in shared memory.
template <typename Config, int registers>
__device__ __forceinline__ void multiply_values(const PrefillShared<Config>& shared, int stage,
                                                int chunk, std::uint64_t weights,
                                                float (&products)[registers]) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    ptx::wgmma_e4m3(products, descriptor(weights, 32 * step), values_of(shared, stage, chunk, step),
                    step > 0);
  }
}

template <int registers>
__device__ __forceinline__ void add_products(float (&output)[registers],
                                             const float (&products)[registers],
                                             const float (&beta)[2]) {
#pragma unroll
  for (int i = 0; i < registers; ++i) {
    output[i] = __fmaf_rn(products[i], beta[i / 2 % 2], output[i]);
  }
}

// The last chunk's, whose last four registers are the row sums.
template <typename Config>
__device__ __forceinline__ void add_last_products(PrefillSums<Config>& sums,
                                                  const float (&products)[Config::last_registers],
                                                  const float (&beta)[2], float sum_factor) {
  constexpr int first_sum = Config::last_registers - 4;
#pragma unroll
  for (int i = 0; i < first_sum; ++i) {
    sums.last_output[i] = __fmaf_rn(products[i], beta[i / 2 % 2], sums.last_output[i]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums.last_output[first_sum + i] =
        __fmaf_rn(products[first_sum + i], Config::scaled ? beta[i / 2] * sum_factor : beta[i / 2],
                  sums.last_output[first_sum + i]);
  }
}

// All chunks of a tile's values, for head_dims whose registers hold no next scores meanwhile: two
// accumulators in turn, so that a chunk is added while the next is multiplied.
template <typename Config>
__device__ __forceinline__ void multiply_and_add_values(const PrefillShared<Config>& shared,
                                                        int stage,
                                                        const std::uint32_t (&weights)[4][4],
                                                        const float (&beta)[2], float sum_factor,
                                                        PrefillSums<Config>& sums) {
  static_assert(Config::chunks == 4);
  float even[32];
  float odd[32];
  float last[Config::last_registers];
  ptx::wgmma_fence();
  multiply_values(shared, stage, 0, weights, even);
  ptx::wgmma_commit();
  multiply_values(shared, stage, 1, weights, odd);
  ptx::wgmma_commit();
  ptx::wgmma_wait_all_but<1>();
  add_products(sums.output[0], even, beta);
  ptx::wgmma_fence();
  multiply_values(shared, stage, 2, weights, even);
  ptx::wgmma_commit();
  ptx::wgmma_wait_all_but<1>();
  add_products(sums.output[1], odd, beta);
  ptx::wgmma_fence();
  multiply_values(shared, stage, 3, weights, last);
  ptx::wgmma_commit();
  ptx::wgmma_wait_all_but<1>();
  add_products(sums.output[2], even, beta);
  ptx::wgmma_wait();
  add_last_products(sums, last, beta, sum_factor);
}

}  // namespace octet
