// The Hopper prefill kernel for bfloat16 keys and values. Internal to src/ops/attention; the design
// and its figures are in docs/kernels/prefill_sm90.md.
//
// A block fills a multiprocessor and stays: two warpgroups that compute, 64 rows each, and one
// whose warps hand out work, load pages and clear what lies past the context. Scores of the next
// tile are multiplied together with this one's values, and become weights while these still are;
// the warpgroups take turns at asking for products.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "core/cuda/ptx.cuh"
#include "core/cuda/wgmma_bfloat16.cuh"
#include "core/cuda/wgmma_narrow.cuh"
#include "ops/attention/prefill_sm90_load.cuh"
#include "ops/attention/prefill_sm90_parameters.h"
#include "ops/attention/prefill_sm90_rows.cuh"
#include "ops/attention/prefill_sm90_shared.cuh"

namespace octet {

// stage_pages: pages of a stage, whose keys are the columns of one product.
template <int head_dim_, int stages_, int stage_pages_>
struct PrefillBfloat16Config {
  static constexpr int head_dim = head_dim_;
  static constexpr bool scaled = false;
  static constexpr int stages = stages_;
  static constexpr int stage_pages = stage_pages_;
  static constexpr int keys = 64 * stage_pages;
  static constexpr int row_groups = 2;
  static constexpr int panel_row = 128;
  static constexpr int panels = head_dim / 64;
  static constexpr int page_side_bytes = 2 * 64 * head_dim;
  static constexpr int scale_bytes = 0;
  static constexpr int value_page_bytes = page_side_bytes;
  static constexpr int query_bytes = 2 * 64 * head_dim;
  static constexpr int weight_bytes = 0;
  static constexpr int threads = 128 * 3;
  static constexpr int preparing_warps = 1;
  static constexpr int item_users = 8;
  static constexpr int stage_users = 8;
  // Outputs in chunks of as many columns as one product takes.
  static constexpr int chunk_columns = head_dim < 128 ? head_dim : 128;
  static constexpr int chunks = head_dim / chunk_columns;
};

// Outputs, relative to 2^base of each row, and the thread's share of the row sums.
template <typename Config>
struct PrefillBfloat16Rows {
  float output[Config::chunks][Config::chunk_columns / 2];
  float sum[2];
  float base[2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int chunk = 0; chunk < Config::chunks; ++chunk) {
#pragma unroll
      for (int i = 0; i < Config::chunk_columns / 2; ++i) output[chunk][i] = 0;
    }
    sum[0] = sum[1] = 0;
    base[0] = base[1] = prefill_no_score;
  }
  __device__ __forceinline__ void rescale(const float (&alpha)[2]) {
#pragma unroll
    for (int chunk = 0; chunk < Config::chunks; ++chunk) {
#pragma unroll
      for (int i = 0; i < Config::chunk_columns / 2; ++i) output[chunk][i] *= alpha[i / 2 % 2];
    }
  }
};

// The warpgroup's query rows, swizzled as keys are. Rows past the last are 0.
template <typename Config>
__device__ __forceinline__ void copy_query(const PrefillParameters& p,
                                           PrefillShared<Config>& shared, const PrefillBlock& item,
                                           int group) {
  constexpr int pieces = Config::head_dim / 8;  // of 16 bytes, of a row
  for (int i = threadIdx.x % 128; i < 64 * pieces; i += 128) {
    const int row = i / pieces;
    const int piece = i % pieces;
    const int place = item.first_row + 64 * group + row;
    uint4 words = make_uint4(0, 0, 0, 0);
    if (place < item.rows) {
      words = *reinterpret_cast<const uint4*>(
          static_cast<const __nv_bfloat16*>(p.query) +
          (item.query_row + place / p.group) * p.query_stride +
          (item.kv_head * p.group + place % p.group) * Config::head_dim + 8 * piece);
    }
    *reinterpret_cast<uint4*>(shared.query[group] + piece / 8 * 64 * 128 + row * 128 +
                              (piece % 8 ^ row % 8) * 16) = words;
  }
  ptx::fence_async_shared();
  ptx::warpgroup_barrier(group);
}

template <typename Config>
__device__ __forceinline__ void multiply_wide_keys(const PrefillShared<Config>& shared, int group,
                                                   int stage, float (&x)[Config::keys / 2]) {
  const std::uint64_t query = ptx::matrix_descriptor<128>(shared.query[group]);
  const std::uint64_t keys = descriptor(ptx::matrix_descriptor<128>(shared.keys[0]),
                                        static_cast<std::uint32_t>(stage) * sizeof(shared.keys[0]));
#pragma unroll
  for (int step = 0; step < Config::head_dim / 16; ++step) {
    const int panel = step / 4;
    const int within = step % 4 * 32;
    ptx::wgmma_bfloat16(x, descriptor(query, panel * 64 * 128 + within),
                        descriptor(keys, panel * Config::keys * 128 + within), step > 0);
  }
}

template <typename Config>
__device__ __forceinline__ void multiply_wide_values(
    const PrefillShared<Config>& shared, int stage,
    const std::uint32_t (&weights)[Config::keys / 16][4], PrefillBfloat16Rows<Config>& rows) {
  const std::uint64_t values =
      descriptor(ptx::transposed_descriptor<128>(shared.values[0][0], 64 * 128),
                 static_cast<std::uint32_t>(stage) * sizeof(shared.values[0]));
#pragma unroll
  for (int chunk = 0; chunk < Config::chunks; ++chunk) {
#pragma unroll
    for (int step = 0; step < Config::keys / 16; ++step) {
      ptx::wgmma_bfloat16_transposed(
          rows.output[chunk], weights[step],
          descriptor(values, step / 4 * Config::page_side_bytes +
                                 chunk * Config::chunk_columns * 128 + step % 4 * 16 * 128),
          true);
    }
  }
}

// Scores become weights 2^(factor x - base), which are summed. A base is kept while no weight is
// above 2^16: bfloat16 and float32 have the range, and nothing waits for a row's maximum. alpha:
// what earlier outputs must be multiplied by.
template <typename Config>
__device__ __forceinline__ bool weigh(float factor, float (&x)[Config::keys / 2],
                                      PrefillBfloat16Rows<Config>& rows, float (&alpha)[2]) {
  constexpr int columns = Config::keys / 8;
  constexpr float most = 16;
  float highest[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float partial[4];
#pragma unroll
    for (int j = 0; j < columns; ++j) {
      const float pair = fmaxf(x[4 * j + 2 * r], x[4 * j + 2 * r + 1]);
      partial[j % 4] = j < 4 ? pair : fmaxf(partial[j % 4], pair);
    }
    highest[r] = factor * fmaxf(fmaxf(partial[0], partial[1]), fmaxf(partial[2], partial[3]));
  }
  const bool moved =
      __any_sync(~0u, highest[0] > rows.base[0] + most || highest[1] > rows.base[1] + most);
  if (moved) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float maximum = highest[r];
      maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, 1));
      maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, 2));
      const float base = fmaxf(rows.base[r], maximum);
      alpha[r] = ptx::exp2_approximate(rows.base[r] - base);
      rows.base[r] = base;
      rows.sum[r] *= alpha[r];
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float partial[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < columns; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& weight = x[4 * j + 2 * r + i];
        weight = ptx::exp2_approximate(__fmaf_rn(weight, factor, -rows.base[r]));
        partial[i] += weight;
      }
    }
    rows.sum[r] += partial[0] + partial[1];
  }
  return moved;
}

template <typename Config>
__device__ __forceinline__ void round_wide_weights(const float (&x)[Config::keys / 2],
                                                   std::uint32_t (&weights)[Config::keys / 16][4]) {
#pragma unroll
  for (int step = 0; step < Config::keys / 16; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __nv_bfloat162 pair =
          __floats2bfloat162_rn(x[8 * step + 2 * i], x[8 * step + 2 * i + 1]);
      weights[step][i] = *reinterpret_cast<const std::uint32_t*>(&pair);
    }
  }
}

template <typename Config>
__device__ __forceinline__ void mask_wide_scores(const PrefillParameters& p,
                                                 const PrefillShared<Config>& shared, int group,
                                                 int first_key, float (&x)[Config::keys / 2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int last = shared.positions[group][row_of_thread(r)] - first_key -
                     2 * static_cast<int>(threadIdx.x % 4);
    const int first = p.window > 0 ? last - p.window + 1 : -Config::keys;
#pragma unroll
    for (int j = 0; j < Config::keys / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (8 * j + i > last || 8 * j + i < first) x[4 * j + 2 * r + i] = -INFINITY;
      }
    }
  }
}

template <typename Config>
__device__ __forceinline__ void store_wide_output(const PrefillParameters& p,
                                                  const PrefillBlock& item, int group,
                                                  const PrefillBfloat16Rows<Config>& rows) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = rows.sum[r];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const float scale = 1.0f / sum;
    const int place = row_place(item, group, r);
    if (place >= item.rows) continue;
    const std::int64_t at = (item.query_row + place / p.group) * p.output_stride +
                            (item.kv_head * p.group + place % p.group) * Config::head_dim +
                            2 * (threadIdx.x % 4);
#pragma unroll
    for (int chunk = 0; chunk < Config::chunks; ++chunk) {
#pragma unroll
      for (int j = 0; j < Config::chunk_columns / 8; ++j) {
        store_pair<Config>(p, at + Config::chunk_columns * chunk + 8 * j,
                           rows.output[chunk][4 * j + 2 * r] * scale,
                           rows.output[chunk][4 * j + 2 * r + 1] * scale);
      }
    }
  }
}

// One item's stages, the last first.
template <typename Config>
__device__ __forceinline__ void compute_wide_item(const PrefillParameters& p,
                                                  PrefillShared<Config>& shared,
                                                  const PrefillBlock& item, int group,
                                                  PrefillRing<Config::stages>& ring) {
  const int lane = threadIdx.x % 32;
  const int own_row = 16 * (threadIdx.x / 32 % 4) + lane % 16;
  if (lane < 16) {
    shared.positions[group][own_row] = row_position(p, item, item.first_row + 64 * group + own_row);
  }
  copy_query(p, shared, item, group);
  const float factor = p.scale_log2;
  const PrefillSeen seen(p, item, group);
  PrefillBfloat16Rows<Config> rows;
  rows.clear();
  float x[Config::keys / 2];
  std::uint32_t weights[Config::keys / 16][4];
  float alpha[2];
  const PrefillStages<Config> stages(item);
  const auto mask = [&](int index) __attribute__((always_inline)) {
    const int first_key = index * Config::keys;
    if (!seen.all(first_key, Config::keys)) mask_wide_scores(p, shared, group, first_key, x);
  };

  ptx::mbarrier_wait(&shared.keys_full[ring.stage], ring.parity);
  take_turn(group);
  ptx::wgmma_fence();
  multiply_wide_keys(shared, group, ring.stage, x);
  ptx::wgmma_commit();
  give_turn(group);
  ptx::wgmma_wait();
  mask(stages.last - 1);
  weigh<Config>(factor, x, rows, alpha);
  round_wide_weights<Config>(x, weights);

#pragma unroll 1
  for (int index = stages.last - 2; index >= stages.first; --index) {
    const int stage = ring.stage;
    const std::uint32_t parity = ring.parity;
    ring.advance();
    ptx::mbarrier_wait(&shared.keys_full[ring.stage], ring.parity);
    ptx::mbarrier_wait(&shared.ready[stage], parity);
    take_turn(group);
    ptx::wgmma_fence();
    multiply_wide_keys(shared, group, ring.stage, x);
    ptx::wgmma_commit();
    multiply_wide_values(shared, stage, weights, rows);
    ptx::wgmma_commit();
    give_turn(group);
    ptx::wgmma_wait_all_but<1>();
    mask(index);
    const bool moved = weigh<Config>(factor, x, rows, alpha);
    ptx::wgmma_wait();
    if (lane == 0) ptx::mbarrier_arrive(&shared.empty[stage]);
    if (moved) rows.rescale(alpha);
    round_wide_weights<Config>(x, weights);
  }

  ptx::mbarrier_wait(&shared.ready[ring.stage], ring.parity);
  take_turn(group);
  ptx::wgmma_fence();
  multiply_wide_values(shared, ring.stage, weights, rows);
  ptx::wgmma_commit();
  give_turn(group);
  ptx::wgmma_wait();
  if (lane == 0) ptx::mbarrier_arrive(&shared.empty[ring.stage]);
  ring.advance();
  store_wide_output(p, item, group, rows);
}

// Sets the values of tokens outside [first, last) of a page to 0. One warp.
template <typename Config>
__device__ void clear_wide_values(std::uint8_t* values, int first, int last) {
  for (int piece = threadIdx.x % 32; piece < Config::page_side_bytes / 16; piece += 32) {
    const int token = piece / 8 % 64;
    if (token < first || token >= last) {
      reinterpret_cast<uint4*>(values)[piece] = make_uint4(0, 0, 0, 0);
    }
  }
}

// Makes each stage's values ready once they are there: zeros where no token is.
template <typename Config>
__device__ void prepare_wide_items(PrefillShared<Config>& shared) {
  const int lane = threadIdx.x % 32;
  PrefillRing<Config::stages> ring;
  for (int n = 0;; ++n) {
    const PrefillBlock& block = take_item(shared, n);
    if (block.kv_head < 0) break;
    const int first = block.first_key / 64 * 64;
    const PrefillStages<Config> stages(block);
    for (int index = stages.last - 1; index >= stages.first; --index) {
      ptx::mbarrier_wait(&shared.values_full[ring.stage], ring.parity);
      const int begin = first - index * Config::keys;
      const int end = block.context - index * Config::keys;
      if (begin > 0 || end < Config::keys) {
        for (int x = 0; x < Config::stage_pages; ++x) {
          clear_wide_values<Config>(shared.values[ring.stage][x], begin - 64 * x, end - 64 * x);
        }
      }
      ptx::fence_async_shared();
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(&shared.ready[ring.stage]);
      ring.advance();
    }
    release_item(shared, n);
  }
}

template <typename Config>
__global__ void __launch_bounds__(Config::threads, 1)
    prefill_bfloat16_kernel(const PrefillParameters p) {
  extern __shared__ std::uint8_t dynamic_shared[];
  auto& shared = align_shared<Config>(dynamic_shared);
  if (threadIdx.x == 0) initialise_barriers(shared);
  __syncthreads();
  // The same in all lanes, and known to be: what it decides then is no divergence.
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 32), 0);
  if (warp >= 8) {
    ptx::give_up_registers_above<40>();
    if (warp == 8) load_items(p, shared);
    if (warp == 9) prepare_wide_items(shared);
  } else {
    ptx::take_registers_up_to<232>();
    PrefillRing<Config::stages> ring;
    // The first turn is the first warpgroup's; at the end it takes the one that is left.
    if (warp / 4 == 1) give_turn(1);
    for (int n = 0;; ++n) {
      const PrefillBlock& item = take_item(shared, n);
      if (item.kv_head < 0) break;
      compute_wide_item(p, shared, item, warp / 4, ring);
      release_item(shared, n);
    }
    if (warp / 4 == 0) take_turn(0);
  }
}

}  // namespace octet
