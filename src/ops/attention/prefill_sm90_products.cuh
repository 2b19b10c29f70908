// The tensor core's work in the prefill kernel: scores, and sums of values. Internal to
// src/ops/attention.
#pragma once

#include <cuda_runtime.h>

#include "core/cuda/ptx.cuh"
#include "core/cuda/wgmma_e4m3.cuh"
#include "ops/attention/prefill_sm90_shared.cuh"

namespace octet {

template <typename Config>
struct PrefillState {
  float output[Config::chunks > 1 ? Config::chunks - 1 : 1][32];
  float last_output[Config::last_registers];  // its last four: the row sums' terms
  // Of each row, as powers of two: the outputs are relative to `maximum`, the largest base so far;
  // the weights of a tile to `base`; and its products must be multiplied by beta = base / maximum.
  float maximum[2];
  float base[2];
  float beta[2];
  float sum_scale;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int chunk = 0; chunk < Config::chunks - 1; ++chunk) {
#pragma unroll
      for (int i = 0; i < 32; ++i) output[chunk][i] = 0;
    }
#pragma unroll
    for (int i = 0; i < Config::last_registers; ++i) last_output[i] = 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      maximum[r] = base[r] = prefill_no_score;
      beta[r] = 0;
    }
  }
};

// A descriptor's low word is all that changes.

__device__ __forceinline__ std::uint64_t descriptor(std::uint64_t first, std::uint32_t bytes) {
  return first + (bytes >> 4);
}

template <typename Config>
__device__ __forceinline__ void multiply_keys(const PrefillShared<Config>& shared, int group,
                                              int stage,
                                              const std::uint32_t (&query)[Config::query_steps][4],
                                              float (&scores)[64]) {
  const std::uint64_t keys = descriptor(ptx::matrix_descriptor<Config::panel_row>(shared.keys[0]),
                                        static_cast<std::uint32_t>(stage) * sizeof(shared.keys[0]));
#pragma unroll
  for (int step = 0; step < Config::query_steps; ++step) {
    const int panel = 32 * step / Config::panel_row;
    const int within = 32 * step % Config::panel_row;
    const std::uint64_t b = descriptor(keys, panel * 128 * Config::panel_row + within);
    if constexpr (Config::query_in_registers) {
      ptx::wgmma_e4m3(scores, query[step], b, step > 0);
    } else {
      ptx::wgmma_e4m3(scores,
                      ptx::matrix_descriptor<Config::panel_row>(
                          shared.query[group] + panel * 64 * Config::panel_row + within),
                      b, step > 0);
    }
  }
}

template <typename Config, int registers>
__device__ __forceinline__ void multiply_values(const PrefillShared<Config>& shared, int stage,
                                                int chunk, const std::uint32_t (&weights)[4][4],
                                                float (&products)[registers]) {
  const std::uint64_t values =
      descriptor(ptx::matrix_descriptor<64>(shared.values[0][0]),
                 static_cast<std::uint32_t>(stage) * sizeof(shared.values[0]) + chunk * 64 * 64);
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    ptx::wgmma_e4m3(products, weights[step],
                    descriptor(values, step / 2 * Config::value_page_bytes + step % 2 * 32),
                    step > 0);
  }
}

// The two warpgroups take turns at the tensor core, so that one multiplies while the other computes
// its softmax. Left alone they fall into step.
__device__ __forceinline__ void take_turn(int group) {
  if (group == 0) {
    ptx::named_barrier<5, 256>();
  } else {
    ptx::named_barrier<6, 256>();
  }
}
__device__ __forceinline__ void give_turn(int group) {
  if (group == 0) {
    ptx::named_barrier_arrive<6, 256>();
  } else {
    ptx::named_barrier_arrive<5, 256>();
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
__device__ __forceinline__ void add_last_products(PrefillState<Config>& state,
                                                  const float (&products)[Config::last_registers]) {
  constexpr int sums = Config::last_registers - 4;
#pragma unroll
  for (int i = 0; i < sums; ++i) {
    state.last_output[i] = __fmaf_rn(products[i], state.beta[i / 2 % 2], state.last_output[i]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    state.last_output[sums + i] =
        __fmaf_rn(products[sums + i],
                  Config::scaled ? state.beta[i / 2] * state.sum_scale : state.beta[i / 2],
                  state.last_output[sums + i]);
  }
}

// All chunks of a tile's values, for head_dims whose registers hold no next scores meanwhile: two
// accumulators in turn, so that a chunk is added while the next is multiplied.
template <typename Config>
__device__ __forceinline__ void multiply_and_add_values(const PrefillShared<Config>& shared,
                                                        int stage,
                                                        const std::uint32_t (&weights)[4][4],
                                                        PrefillState<Config>& state) {
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
  add_products(state.output[0], even, state.beta);
  ptx::wgmma_fence();
  multiply_values(shared, stage, 2, weights, even);
  ptx::wgmma_commit();
  ptx::wgmma_wait_all_but<1>();
  add_products(state.output[1], odd, state.beta);
  ptx::wgmma_fence();
  multiply_values(shared, stage, 3, weights, last);
  ptx::wgmma_commit();
  ptx::wgmma_wait_all_but<1>();
  add_products(state.output[2], even, state.beta);
  ptx::wgmma_wait();
  add_last_products(state, last);
}

}  // namespace octet
