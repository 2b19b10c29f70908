// The Hopper prefill kernel for e4m3 keys and values at head_dim 256. Internal to
// src/ops/attention; the design and its figures are in docs/kernels/prefill_sm90.md.
//
// A block fills a multiprocessor and stays: two warpgroups that compute, 64 rows each, and one
// whose warps hand out work, load pages and prepare what lies beside them. For a tile of 128 keys:
//   S = Q K^T                       rows are the tensor core's 64, keys its columns
//   w = round(2^(S - base))         the base a whole number of each row, near the tile's maximum
//   T = w V                         from zero, then O = O + T * beta in float32
// The registers that hold S become the next product's A operand as they are (kv/element_order.h),
// and the row sum is eight more columns of V.
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

// One item's tiles, the last first: scores, weights and values one after the other, overlapped by
// the other warpgroup's.
template <typename Config>
__device__ __forceinline__ void compute_tiles(const PrefillParameters& p,
                                              PrefillShared<Config>& shared,
                                              const PrefillBlock& item, int group, float factor,
                                              PrefillRing<Config::stages>& ring,
                                              PrefillSums<Config>& sums) {
  PrefillBases bases;
  bases.clear();
  const PrefillSeen seen(p, item, group);
#pragma unroll 1
  for (int index = item.last_tile - 1; index >= item.first_tile; --index) {
    PrefillScores<Config> x;
    std::uint32_t powers[2][16];
    PrefillColumnPairs columns;
    ptx::mbarrier_wait(&shared.ready[ring.stage], ring.parity);
    ptx::wgmma_fence();
    multiply_keys(shared, group, ring.stage, x);
    ptx::wgmma_commit();
    // Beside sums of 32 bits there are no registers for them until the sums are there.
    constexpr bool early = Config::scaled && Config::keys == PrefillKeys::fp8;
    if constexpr (early) fetch_columns(shared, ring.stage, columns);
    const float2 factors = shared.tile_factors[ring.stage];
    ptx::wgmma_wait();
    if constexpr (Config::scaled && !early) fetch_columns(shared, ring.stage, columns);
    float rows[2];
    fetch_rows(shared, group, rows);
    scale_scores<Config>(x, columns, rows, factor, powers);
    const int first_key = index * prefill_tile_keys;
    if (!seen.all(first_key)) mask_powers(p, shared, group, first_key, powers);
    float maxima[2];
    find_maxima(powers, maxima);
    if (!PrefillBases::fit(maxima[0] - bases.base[0], maxima[1] - bases.base[1])) {
      bases.move(maxima);
      sums.rescale(bases.alpha);
    }
    std::uint32_t weights[4][4];
    round_weights<Config>(powers, bases.base, weights);
    const float beta[2] = {bases.beta(0) * factors.x, bases.beta(1) * factors.x};
    multiply_and_add_values(shared, ring.stage, weights, beta, factors.y, sums);
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.empty[ring.stage]);
    ring.advance();
  }
}

template <typename Config>
__device__ __forceinline__ void compute_item(const PrefillParameters& p,
                                             PrefillShared<Config>& shared,
                                             const PrefillBlock& item, int group, int n,
                                             PrefillRing<Config::stages>& ring) {
  store_positions(p, shared, item, group);
  const float factor =
      load_query(p, shared, item, group, n) * p.scale_log2 * key_scale<Config>(p, item);
  PrefillSums<Config> sums;
  sums.clear();
  compute_tiles(p, shared, item, group, factor, ring, sums);
  store_output(p, item, group, sums);
}

template <typename Config>
__global__ void __launch_bounds__(Config::threads, 1) prefill_kernel(const PrefillParameters p) {
  extern __shared__ std::uint8_t dynamic_shared[];
  auto& shared = align_shared<Config>(dynamic_shared);
  if (threadIdx.x == 0) initialise_barriers(shared);
  clear_inverses(shared);
  __syncthreads();
  // The same in all lanes, and known to be: what it decides then is no divergence.
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 32), 0);
  if (warp >= 8) {
    ptx::give_up_registers_above<40>();
    if (warp == 8) load_items(p, shared);
    if (warp == 9) prepare_items(p, shared, 0);
  } else {
    ptx::take_registers_up_to<232>();
    PrefillRing<Config::stages> ring;
    for (int n = 0;; ++n) {
      const PrefillBlock& item = take_item(shared, n);
      if (item.kv_head < 0) break;
      compute_item(p, shared, item, warp / 4, n, ring);
      release_item(shared, n);
    }
  }
}

}  // namespace octet
