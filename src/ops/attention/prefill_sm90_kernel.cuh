// The Hopper prefill kernel for e4m3 keys and values. Internal to src/ops/attention; the design and
// its figures are in docs/kernels/prefill_sm90.md.
//
// A block fills a multiprocessor and stays: two warpgroups that compute, 64 rows each, and one
// whose warps hand out work, load pages and prepare what lies beside them. For a tile of 128 keys:
//   S = Q K^T                       rows are the tensor core's 64, keys its columns
//   w = round(2^(S - base))         the base a whole number of each row, near the tile's maximum
//   T = w V                         from zero, then O = O + T * beta in float32
// The registers that hold S become the next product's A operand as they are (kv/element_order.h),
// and the row sum is eight more columns of V. S of the next tile is multiplied while T is.
#pragma once

#include <cuda_runtime.h>

#include "core/cuda/ptx.cuh"
#include "ops/attention/prefill_sm90_load.cuh"
#include "ops/attention/prefill_sm90_parameters.h"
#include "ops/attention/prefill_sm90_products.cuh"
#include "ops/attention/prefill_sm90_rows.cuh"
#include "ops/attention/prefill_sm90_shared.cuh"
#include "ops/attention/prefill_sm90_softmax.cuh"

namespace octet {

// What decides which of an item's tiles are masked: every row of the warpgroup sees the keys in
// [from, to).
struct PrefillSeen {
  int from;
  int to;

  __device__ __forceinline__ PrefillSeen(const PrefillParameters& p, const PrefillBlock& item,
                                         int group) {
    const int first_row = item.first_row + 64 * group;
    to = row_position(p, item, first_row) + 1;
    from = p.window > 0 ? row_position(p, item, first_row + 63) - p.window + 1 : 0;
  }
  __device__ __forceinline__ bool all(int first_key) const {
    return first_key >= from && first_key + prefill_tile_keys <= to;
  }
};

// One item's tiles, the last first. The next tile's scores are multiplied together with this one's
// values, and the last chunk of these while the next scores are scaled.
template <typename Config>
__device__ __forceinline__ void compute_tiles(const PrefillParameters& p,
                                              PrefillShared<Config>& shared,
                                              const PrefillBlock& item, int group, float factor,
                                              const std::uint32_t (&query)[Config::query_steps][4],
                                              PrefillRing<Config::stages>& ring,
                                              PrefillState<Config>& state) {
  static_assert(Config::chunks <= 2);
  const PrefillSeen seen(p, item, group);
  float x[64];
  std::uint32_t weights[4][4];
  PrefillColumns<Config> columns;
  const auto weigh = [&](int index, int stage) __attribute__((always_inline)) {
    const int first_key = index * prefill_tile_keys;
    const bool masked = !seen.all(first_key);
    if (masked) mask_scores(p, shared, group, first_key, x);
    state.sum_scale = shared.sum_scale[stage];
    compute_weights(factor, masked, x, state, weights);
  };

  ptx::mbarrier_wait(&shared.keys_full[ring.stage], ring.parity);
  take_turn(group);
  ptx::wgmma_fence();
  multiply_keys(shared, group, ring.stage, query, x);
  ptx::wgmma_commit();
  ptx::mbarrier_wait(&shared.ready[ring.stage], ring.parity);
  fetch_columns(shared, ring.stage, columns);
  ptx::wgmma_wait();
  give_turn(group);
  scale_scores(shared, ring.stage, columns, x);
  weigh(item.last_tile - 1, ring.stage);

#pragma unroll 1
  for (int index = item.last_tile - 2; index >= item.first_tile; --index) {
    PrefillRing<Config::stages> next = ring;
    next.advance();
    float products[32];
    float last_products[Config::last_registers];
    ptx::mbarrier_wait(&shared.keys_full[next.stage], next.parity);
    take_turn(group);
    ptx::wgmma_fence();
    if constexpr (Config::chunks == 2) {
      multiply_values(shared, ring.stage, 0, weights, products);
      ptx::wgmma_commit();
    }
    multiply_keys(shared, group, next.stage, query, x);
    ptx::wgmma_commit();
    if constexpr (Config::chunks == 2) {
      ptx::wgmma_wait_all_but<1>();
      add_products(state.output[0], products, state.beta);
      ptx::wgmma_fence();
    }
    multiply_values(shared, ring.stage, Config::chunks - 1, weights, last_products);
    ptx::wgmma_commit();
    ptx::mbarrier_wait(&shared.ready[next.stage], next.parity);
    fetch_columns(shared, next.stage, columns);
    ptx::wgmma_wait_all_but<1>();
    give_turn(group);
    scale_scores(shared, next.stage, columns, x);
    ptx::wgmma_wait();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.empty[ring.stage]);
    add_last_products(state, last_products);
    weigh(index, next.stage);
    ring = next;
  }

  float products[32];
  float last_products[Config::last_registers];
  take_turn(group);
  ptx::wgmma_fence();
  if constexpr (Config::chunks == 2) {
    multiply_values(shared, ring.stage, 0, weights, products);
    ptx::wgmma_commit();
  }
  multiply_values(shared, ring.stage, Config::chunks - 1, weights, last_products);
  ptx::wgmma_commit();
  ptx::wgmma_wait();
  give_turn(group);
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.empty[ring.stage]);
  ring.advance();
  if constexpr (Config::chunks == 2) add_products(state.output[0], products, state.beta);
  add_last_products(state, last_products);
}

// The same for head_dims whose registers do not hold the next scores: scores, weights and values
// one after the other, overlapped by the other warpgroup's.
template <typename Config>
__device__ __forceinline__ void compute_tiles_in_turn(
    const PrefillParameters& p, PrefillShared<Config>& shared, const PrefillBlock& item, int group,
    float factor, const std::uint32_t (&query)[Config::query_steps][4],
    PrefillRing<Config::stages>& ring, PrefillState<Config>& state) {
  const PrefillSeen seen(p, item, group);
#pragma unroll 1
  for (int index = item.last_tile - 1; index >= item.first_tile; --index) {
    float x[64];
    float maxima[2];
    std::uint32_t weights[4][4];
    PrefillColumns<Config> columns;
    ptx::mbarrier_wait(&shared.keys_full[ring.stage], ring.parity);
    ptx::wgmma_fence();
    multiply_keys(shared, group, ring.stage, query, x);
    ptx::wgmma_commit();
    ptx::mbarrier_wait(&shared.ready[ring.stage], ring.parity);
    fetch_columns(shared, ring.stage, columns);
    state.sum_scale = shared.sum_scale[ring.stage];
    ptx::wgmma_wait();
    scale_scores(shared, ring.stage, columns, x);
    const int first_key = index * prefill_tile_keys;
    if (!seen.all(first_key)) mask_scores(p, shared, group, first_key, x);
    // No weights before the maxima are known: scores would have to outlive them.
    find_maxima<Config>(factor, x, maxima);
    if (!bases_fit(state, maxima)) move_bases(state, maxima);
    round_weights<Config>(factor, x, state.base, weights);
    multiply_and_add_values(shared, ring.stage, weights, state);
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.empty[ring.stage]);
    ring.advance();
  }
}

template <typename Config>
__device__ __forceinline__ void compute_item(const PrefillParameters& p,
                                             PrefillShared<Config>& shared,
                                             const PrefillBlock& item, int group, int n,
                                             PrefillRing<Config::stages>& ring) {
  std::uint32_t query[Config::query_steps][4];
  const int lane = threadIdx.x % 32;
  const int row = 16 * (threadIdx.x / 32 % 4) + lane % 16;
  if (lane < 16) {
    shared.positions[group][row] = row_position(p, item, item.first_row + 64 * group + row);
  }
  __syncwarp();
  const float factor = load_query(p, shared, item, group, n, query) * p.scale_log2;
  PrefillState<Config> state;
  state.clear();
  if constexpr (Config::chunks <= 2) {
    compute_tiles(p, shared, item, group, factor, query, ring, state);
  } else {
    compute_tiles_in_turn(p, shared, item, group, factor, query, ring, state);
  }
  store_output(p, item, group, state);
}

template <typename Config>
__global__ void __launch_bounds__(Config::threads, 1) prefill_kernel(const PrefillParameters p) {
  extern __shared__ std::uint8_t dynamic_shared[];
  // Moved on by pointer arithmetic: an address made from an integer would no longer be known to lie
  // in shared memory.
  auto& shared = *reinterpret_cast<PrefillShared<Config>*>(
      dynamic_shared + (1024 - ptx::shared_address(dynamic_shared) % 1024) % 1024);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Config::stages; ++stage) {
      ptx::mbarrier_init(&shared.keys_full[stage], 1);
      ptx::mbarrier_init(&shared.values_full[stage], 1);
      ptx::mbarrier_init(&shared.ready[stage], 1);
      ptx::mbarrier_init(&shared.empty[stage], 4 * Config::warpgroups);
    }
    for (int i = 0; i < 2; ++i) {
      ptx::mbarrier_init(&shared.item_full[i], 1);
      ptx::mbarrier_init(&shared.item_empty[i], 4 * Config::warpgroups + 1);
    }
    ptx::mbarrier_init(&shared.query_ready, 4 * Config::warpgroups);
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  // The same in all lanes, and known to be: what it decides then is no divergence.
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 32), 0);
  if (warp >= 4 * Config::warpgroups) {
    ptx::give_up_registers_above<40>();
    if (warp == 4 * Config::warpgroups) load_items(p, shared);
    if (warp == 4 * Config::warpgroups + 1) prepare_items(p, shared);
  } else {
    ptx::take_registers_up_to<232>();
    PrefillRing<Config::stages> ring;
    // The first turn is the first warpgroup's; at the end it takes the one that is left.
    if (Config::chunks <= 2 && warp / 4 == 1) give_turn(1);
    for (int n = 0;; ++n) {
      const PrefillBlock& item = take_item(shared, n);
      if (item.kv_head < 0) break;
      compute_item(p, shared, item, warp / 4, n, ring);
      release_item(shared, n);
    }
    if (Config::chunks <= 2 && warp / 4 == 0) take_turn(0);
  }
}

}  // namespace octet
