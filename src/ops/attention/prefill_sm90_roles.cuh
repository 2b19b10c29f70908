// The Hopper prefill kernel for e4m3 keys and values at head_dim 64 and 128. Internal to
// src/ops/attention; the design and its figures are in docs/kernels/prefill_sm90.md.
//
// A block fills a multiprocessor and stays. Its warpgroups have one role each, so that none waits
// for a chain of all that a tile takes. For a tile of 128 keys:
//   two weighers, 64 rows each:  S = Q K^T             rows are the tensor core's 64
//                                w = round(2^(S - base))
//   an adder, for all 128 rows:  T = w V               from zero, then O = O + T * beta in float32
//   a loader, by warp:           hands out work and asks for pages; prepares what lies beside them
// Weights go from weigher to adder through shared memory, two tiles deep.
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

// Lays a tile's weights where the adder finds them, and what its products and outputs must be
// multiplied by.
template <typename Config>
__device__ __forceinline__ void lay_weights(PrefillShared<Config>& shared, int group,
                                            const PrefillRing<2>& places, const PrefillBases& bases,
                                            const std::uint32_t (&weights)[4][4]) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32 % 4;
  const int place = places.stage;
  // The lane's row of four matrices: rows 8 (lane / 8 % 2) + lane % 8 of the warp's, sixteen keys
  // 2 step + lane / 16.
  const int row = 16 * warp + lane % 8 + lane / 8 % 2 * 8;
  const std::uint32_t address =
      ptx::shared_address(shared.weights[group][place]) + 128 * row + 16 * (lane / 16 ^ lane % 8);
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    ptx::store_matrices(address ^ (32 * step), weights[step][0], weights[step][1], weights[step][2],
                        weights[step][3]);
  }
  if (lane % 4 == 0) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      shared.row_factors[group][place][row_of_thread(r)] =
          make_float2(bases.beta(r), bases.alpha[r]);
    }
  }
}
// Tells the adder. Some time after they were laid: the fence waits until they are there.
template <typename Config>
__device__ __forceinline__ void hand_over(PrefillShared<Config>& shared, int group,
                                          PrefillRing<2>& places) {
  ptx::fence_async_shared();
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.weights_full[group][places.stage]);
  places.advance();
}

// One item's tiles, the last first. The next tile's scores are multiplied while this one's become
// weights.
template <typename Config>
__device__ __forceinline__ void weigh_item(const PrefillParameters& p,
                                           PrefillShared<Config>& shared, const PrefillBlock& item,
                                           int group, int n, PrefillRing<Config::stages>& ring,
                                           PrefillRing<2>& places) {
  std::uint32_t query[Config::query_steps][4];
  const int lane = threadIdx.x % 32;
  store_positions(p, shared, item, group);
  const float factor =
      load_query(p, shared, item, group, n, query) * p.scale_log2 * key_scale<Config>(p, item);
  const PrefillSeen seen(p, item, group);
  PrefillBases bases;
  bases.clear();
  PrefillScores<Config> x;
  std::uint32_t powers[2][16];

  const auto multiply = [&]() __attribute__((always_inline)) {
    ptx::mbarrier_wait(&shared.ready[ring.stage], ring.parity);
    ptx::wgmma_fence();
    multiply_keys(shared, ring.stage, query, x);
    ptx::wgmma_commit();
  };
  const auto take_scores = [&](bool first) __attribute__((always_inline)) {
    PrefillColumnPairs columns;
    if constexpr (Config::scaled) fetch_columns(shared, ring.stage, columns);
    float rows[2];
    fetch_rows(shared, group, rows);
    ptx::wgmma_wait();
    if (!first) hand_over(shared, group, places);
    scale_scores<Config>(x, columns, rows, factor, powers);
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(&shared.empty[ring.stage]);
    ring.advance();
  };
  const auto weigh = [&](int index) __attribute__((always_inline)) {
    const int first_key = index * prefill_tile_keys;
    std::uint64_t* empty = &shared.weights_empty[group][places.stage];
    const bool is_empty = ptx::mbarrier_test(empty, places.parity ^ 1);
    float maxima[2];
    bases.alpha[0] = bases.alpha[1] = 1;
    if (!seen.all(first_key)) mask_powers(p, shared, group, first_key, powers);
    find_maxima(powers, maxima);
    if (!PrefillBases::fit(maxima[0] - bases.base[0], maxima[1] - bases.base[1])) {
      bases.move(maxima);
    }
    std::uint32_t weights[4][4];
    if constexpr (Config::turns) take_turn(group);
    round_weights<Config>(powers, bases.base, weights);
    if constexpr (Config::turns) give_turn(group);
    if (!is_empty) ptx::mbarrier_wait(empty, places.parity ^ 1);
    lay_weights(shared, group, places, bases, weights);
  };

  const int first_tile = item.first_tile;
  const int last_tile = item.last_tile;
  multiply();
  take_scores(true);
#pragma unroll 1
  for (int index = last_tile - 1; index > first_tile; --index) {
    multiply();
    weigh(index);
    take_scores(false);
  }
  weigh(first_tile);
  hand_over(shared, group, places);
}

// One item's tiles, of both groups of rows in turn.
template <typename Config>
class PrefillAdder {
 public:
  __device__ __forceinline__ PrefillAdder(PrefillShared<Config>& shared) : shared_(shared) {}

  template <int group>
  __device__ __forceinline__ void take_weights(int place, std::uint32_t parity, float tile_factor,
                                               PrefillSums<Config>& sums, float (&beta)[2]) {
    ptx::mbarrier_wait(&shared_.weights_full[group][place], parity);
    float alpha[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float2 factors = shared_.row_factors[group][place][row_of_thread(r)];
      beta[r] = Config::scaled ? factors.x * tile_factor : factors.x;
      alpha[r] = factors.y;
    }
    sums.rescale(alpha);
  }
  template <int group, int registers>
  __device__ __forceinline__ void multiply(int stage, int place, int chunk,
                                           float (&products)[registers]) {
    ptx::wgmma_fence();
    const std::uint64_t weights =
        descriptor(ptx::matrix_descriptor<128>(shared_.weights[group][0]),
                   static_cast<std::uint32_t>(place) * sizeof(shared_.weights[group][0]));
    multiply_values(shared_, stage, chunk, weights, products);
    ptx::wgmma_commit();
  }
  template <int group>
  __device__ __forceinline__ void release_weights(int place) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared_.weights_empty[group][place]);
  }
  __device__ __forceinline__ void release_stage(int stage) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared_.empty[stage]);
  }

 private:
  PrefillShared<Config>& shared_;
};

template <typename Config>
requires(Config::chunks == 1) __device__ __forceinline__
    void add_tiles(PrefillShared<Config>& shared, int tiles, PrefillRing<Config::stages>& ring,
                   PrefillRing<2>& places, PrefillSums<Config> (&sums)[2]) {
  PrefillAdder<Config> adder(shared);
  const auto add = [&]<int group>() __attribute__((always_inline)) {
    float beta[2];
    float products[Config::last_registers];
    const float2 factors = shared.tile_factors[ring.stage];
    adder.template take_weights<group>(places.stage, places.parity, factors.x, sums[group], beta);
    adder.template multiply<group>(ring.stage, places.stage, 0, products);
    ptx::wgmma_wait();
    adder.template release_weights<group>(places.stage);
    if (group == 1) adder.release_stage(ring.stage);
    add_last_products(sums[group], products, beta, factors.y);
  };
#pragma unroll 1
  for (; tiles > 0; --tiles) {
    ptx::mbarrier_wait(&shared.ready[ring.stage], ring.parity);
    add.template operator()<0>();
    add.template operator()<1>();
    ring.advance();
    places.advance();
  }
}

// Two chunks: one's products are added while the next's are multiplied, within a tile. (Across
// tiles the compiler would make the products wait for one another.)
template <typename Config>
requires(Config::chunks == 2) __device__ __forceinline__
    void add_tiles(PrefillShared<Config>& shared, int tiles, PrefillRing<Config::stages>& ring,
                   PrefillRing<2>& places, PrefillSums<Config> (&sums)[2]) {
  PrefillAdder<Config> adder(shared);
#pragma unroll 1
  for (; tiles > 0; --tiles) {
    const int stage = ring.stage;
    const int place = places.stage;
    float products[32];
    float last_products[Config::last_registers];
    float beta[2][2];
    ptx::mbarrier_wait(&shared.ready[stage], ring.parity);
    const float2 factors = shared.tile_factors[stage];
    adder.template take_weights<0>(place, places.parity, factors.x, sums[0], beta[0]);
    adder.template multiply<0>(stage, place, 0, products);
    adder.template multiply<0>(stage, place, 1, last_products);
    ptx::wgmma_wait_all_but<1>();
    add_products(sums[0].output[0], products, beta[0]);
    adder.template take_weights<1>(place, places.parity, factors.x, sums[1], beta[1]);
    adder.template multiply<1>(stage, place, 0, products);
    ptx::wgmma_wait_all_but<1>();
    adder.template release_weights<0>(place);
    add_last_products(sums[0], last_products, beta[0], factors.y);
    adder.template multiply<1>(stage, place, 1, last_products);
    ptx::wgmma_wait_all_but<1>();
    add_products(sums[1].output[0], products, beta[1]);
    ptx::wgmma_wait();
    adder.template release_weights<1>(place);
    adder.release_stage(stage);
    add_last_products(sums[1], last_products, beta[1], factors.y);
    ring.advance();
    places.advance();
  }
}

template <typename Config>
__global__ void __launch_bounds__(Config::threads, 1)
    prefill_roles_kernel(const PrefillParameters p) {
  extern __shared__ std::uint8_t dynamic_shared[];
  auto& shared = align_shared<Config>(dynamic_shared);
  if (threadIdx.x == 0) initialise_barriers(shared);
  clear_inverses(shared);
  __syncthreads();
  // The same in all lanes, and known to be: what it decides then is no divergence.
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 32), 0);
  if (warp >= 12) {
    ptx::give_up_registers_above<Config::loader_registers>();
    if (warp == 12) load_items(p, shared);
    if (warp == 13 || warp == 14) prepare_items(p, shared, warp - 13);
  } else if (warp >= 8) {
    ptx::take_registers_up_to<Config::adder_registers>();
    PrefillRing<Config::stages> ring;
    PrefillRing<2> places;
    for (int n = 0;; ++n) {
      const PrefillBlock& item = take_item(shared, n);
      if (item.kv_head < 0) break;
      PrefillSums<Config> sums[2];
      sums[0].clear();
      sums[1].clear();
      const int tiles = item.last_tile - item.first_tile;
      add_tiles(shared, tiles, ring, places, sums);
      store_output(p, item, 0, sums[0]);
      store_output(p, item, 1, sums[1]);
      release_item(shared, n);
    }
  } else {
    if constexpr (Config::weigher_registers > 128) {
      ptx::take_registers_up_to<Config::weigher_registers>();
    } else {
      ptx::give_up_registers_above<Config::weigher_registers>();
    }
    PrefillRing<Config::stages> ring;
    PrefillRing<2> places;
    // The first turn is the first warpgroup's; at the end it takes the one that is left.
    if (Config::turns && warp / 4 == 1) give_turn(1);
    for (int n = 0;; ++n) {
      const PrefillBlock& item = take_item(shared, n);
      if (item.kv_head < 0) break;
      weigh_item(p, shared, item, warp / 4, n, ring, places);
      release_item(shared, n);
    }
    if (Config::turns && warp / 4 == 0) take_turn(0);
  }
}

}  // namespace octet
