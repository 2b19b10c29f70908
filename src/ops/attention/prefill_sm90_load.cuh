// The loading warpgroup of the prefill kernel: one warp hands out work and asks for pages, one
// prepares what lies in shared memory beside them. Internal to src/ops/attention.
#pragma once

#include <cuda_runtime.h>

#include "core/cuda/ptx.cuh"
#include "ops/attention/prefill_sm90_shared.cuh"
#include "ops/attention/sm90_pages.cuh"

namespace octet {

// Asks for the pages of an item, the last first. Lanes hold the pages' addresses, 32 at a time.
template <typename Config>
__device__ void load_item(const PrefillParameters& p, PrefillShared<Config>& shared,
                          const PrefillBlock& block, PrefillRing<Config::stages>& ring,
                          bool& filled) {
  constexpr int stage_pages = Config::stage_pages;
  const int lane = threadIdx.x % 32;
  const std::int32_t* table =
      p.page_table + static_cast<std::int64_t>(block.sequence) * p.page_table_stride;
  const int first_page = block.first_key / 64;
  const int last_page = (block.context + 63) / 64;
  const PrefillStages<Config> stages(block);
  const std::byte* run = nullptr;
  for (int index = stages.last - 1, count = 0; index >= stages.first; --index, ++count) {
    if (count % (32 / stage_pages) == 0) {
      const int page = stage_pages * (index + 1) - 1 - lane;
      if (page >= first_page && page < last_page) {
        run = run_of_page(p, table[page], block.kv_head);
      }
    }
    const int stage = ring.stage;
    if (filled) ptx::mbarrier_wait(&shared.empty[stage], ring.parity ^ 1);
    const int pages =
        min(stage_pages * (index + 1), last_page) - max(stage_pages * index, first_page);
    if (lane == 0) {
      ptx::mbarrier_expect(&shared.keys_full[stage], pages * Config::page_side_bytes);
      ptx::mbarrier_expect(&shared.values_full[stage],
                           pages * (Config::page_side_bytes + Config::scale_bytes));
    }
    __syncwarp();
    // The lane's page is the stage's x-th.
    const int x = stage_pages - 1 - (lane - stage_pages * (count % (32 / stage_pages)));
    const int page = stage_pages * index + x;
    if (x >= 0 && x < stage_pages && page >= first_page && page < last_page) {
      constexpr int piece = 64 * Config::panel_row;
#pragma unroll
      for (int panel = 0; panel < Config::panels; ++panel) {
        ptx::bulk_copy(shared.keys[stage] + (stage_pages * panel + x) * piece, run + panel * piece,
                       piece, &shared.keys_full[stage]);
      }
      ptx::bulk_copy(shared.values[stage][x], run + Config::page_side_bytes,
                     Config::page_side_bytes, &shared.values_full[stage]);
      if (Config::scaled) {
        ptx::bulk_copy(shared.scales[stage][x], run + 2 * Config::page_side_bytes,
                       Config::scale_bytes, &shared.values_full[stage]);
      }
    }
    ring.advance();
    if (ring.stage == 0) filled = true;
  }
}

// Hands out work: the first item by the block's number, the others to whoever asks first.
template <typename Config>
__device__ void load_items(const PrefillParameters& p, PrefillShared<Config>& shared) {
  const int lane = threadIdx.x % 32;
  const int items = p.block_count * p.kv_heads;
  PrefillRing<Config::stages> ring;
  bool filled = false;
  int index = blockIdx.x;
  for (int n = 0;; ++n) {
    if (n >= 2) ptx::mbarrier_wait(&shared.item_empty[n % 2], (n / 2 - 1) & 1);
    PrefillBlock& block = shared.items[n % 2];
    // The number of the next item, asked for long before it is needed.
    int next = 0;
    if (lane == 0) {
      if (index < items) {
        block = p.blocks[index / p.kv_heads];
        block.kv_head = index % p.kv_heads;
        next = gridDim.x + atomicAdd(&p.counters[0], 1u);
      } else {
        block.kv_head = -1;
      }
      ptx::mbarrier_arrive(&shared.item_full[n % 2]);
    }
    __syncwarp();
    if (index >= items) break;
    load_item(p, shared, block, ring, filled);
    index = __shfl_sync(~0u, next, 0);
  }
  // The last block to be done leaves the counters as it found them.
  if (lane == 0 && ptx::atomic_add_ordered(&p.counters[1], 1) + 1 == gridDim.x) {
    p.counters[0] = 0;
    p.counters[1] = 0;
  }
}

// The rows below the values: 1 / scale of each token as three e4m3 terms (row 1 in sixteenths of
// row 0, row 2 of row 1), so that products with them give the sum of the weights as the
// denominator wants it. A factor of the tile keeps them within e4m3's range: its largest scale
// becomes 2^-6 to 2^-5, and one below 2^-13 of that counts as 2^-13 (its values then are too large,
// by at most 2^-13 of the tile's largest value).
template <typename Config>
__device__ void prepare_columns(const PrefillParameters& p, PrefillShared<Config>& shared,
                                int stage, float query_down, int first, int last) {
  const int lane = threadIdx.x % 32;
  // Of the lane's two neighbouring keys of page x; side 0: keys, 1: values. Read again where they
  // are needed again: these warps have few registers.
  const auto scales_of = [&](int x, int side) {
    const int key = 64 * x + 2 * lane;
    const auto bits =
        reinterpret_cast<const std::uint32_t*>(shared.scales[stage][x])[32 * side + lane];
    return make_float2(
        key >= first && key < last ? __uint_as_float(bits << 16) : 0.0f,
        key + 1 >= first && key + 1 < last ? __uint_as_float(bits & 0xFFFF0000u) : 0.0f);
  };
  float largest = 0;
#pragma unroll
  for (int x = 0; x < 2; ++x) {
    const float2 scales = scales_of(x, 1);
    largest = fmaxf(largest, fmaxf(scales.x, scales.y));
  }
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
  }
  const int exponent = max(static_cast<int>(__float_as_uint(largest) >> 23), 16);
  const float up = __uint_as_float(static_cast<unsigned>(exponent - 5) << 23);
  if (lane == 0) {
    shared.tile_factors[stage] =
        make_float2(__uint_as_float(static_cast<unsigned>(exponent) << 23),
                    __uint_as_float(static_cast<unsigned>(259 - exponent) << 23));
  }
  const float least = largest * 0x1p-13f;
  const float key_factor = query_down * p.scale_log2;
#pragma unroll
  for (int x = 0; x < 2; ++x) {
    const float2 value_scales = scales_of(x, 1);
    const float2 key_scales = scales_of(x, 0);
    const float low = fmaxf(value_scales.x, least);
    const float high = fmaxf(value_scales.y, least);
    const float2 keys = make_float2(key_scales.x * key_factor, key_scales.y * key_factor);
    const float2 values = make_float2(ptx::log2_approximate(low), ptx::log2_approximate(high));
    // float16 has a power of two near 0 best: relative to that of the tile's largest scale.
    const float offset = static_cast<float>(127 - exponent);
    const int eight = 8 * x + lane / 4;
    shared.columns[stage][(eight / 2 * 4 + lane % 4) * 2 + eight % 2] = make_uint2(
        ptx::to_float16x2(keys.x, keys.y), ptx::to_float16x2(values.x + offset, values.y + offset));
    const bool low_valid = 64 * x + 2 * lane >= first && 64 * x + 2 * lane < last;
    const bool high_valid = 64 * x + 2 * lane + 1 >= first && 64 * x + 2 * lane + 1 < last;
    float low_rest = low_valid ? __fdividef(up, low) : 0.0f;
    float high_rest = high_valid ? __fdividef(up, high) : 0.0f;
    // Both tokens are neighbours in the permuted row too.
    const int within = 2 * lane % 16;
    const int place = 2 * lane - within + within % 8 * 2 + within / 8 * 2;
    std::uint8_t* rows = shared.values[stage][x] + Config::page_side_bytes;
#pragma unroll
    for (int term = 0; term < 3; ++term) {
      const std::uint32_t codes = ptx::to_e4m3x2(low_rest, high_rest);
      const float2 rounded = ptx::from_e4m3x2(codes);
      low_rest = 16 * (low_rest - rounded.x);
      high_rest = 16 * (high_rest - rounded.y);
      const int offset = 64 * term + place;
      *reinterpret_cast<std::uint16_t*>(rows + (offset ^ (offset / 128 % 4 * 16))) =
          static_cast<std::uint16_t>(codes);
    }
  }
}

// Rows of ones (or, with scales, room for the inverses) below the values of every stage. All
// threads of the block, before they part.
template <typename Config>
__device__ void clear_inverses(PrefillShared<Config>& shared) {
  for (int i = threadIdx.x; i < Config::stages * 64; i += Config::threads) {
    const int place = i % 32;
    auto* rows =
        reinterpret_cast<uint4*>(shared.values[i / 64][i / 32 % 2] + Config::page_side_bytes);
    const std::uint32_t word = place < 4 && !Config::scaled ? 0x38383838u : 0;  // 1.0
    rows[place] = make_uint4(word, word, word, word);
    if (i % 64 == 0) shared.tile_factors[i / 64] = make_float2(1, 1);
  }
  ptx::fence_async_shared();
}

// Makes each tile ready once it is there: the columns' factors, and zeros where no token is. Warps
// that do so take every so-manieth tile, the warp `which` the first.
template <typename Config>
__device__ void prepare_items(const PrefillParameters& p, PrefillShared<Config>& shared,
                              int which) {
  const int lane = threadIdx.x % 32;
  PrefillRing<Config::stages> ring;
  int turn = which;
  for (int n = 0;; ++n) {
    const PrefillBlock& block = take_item(shared, n);
    if (block.kv_head < 0) break;
    const int first = block.first_key / 64 * 64;
    float query_down = 0;
    bool known = !Config::scaled;
    for (int tile = block.last_tile - 1; tile >= block.first_tile; --tile) {
      const int stage = ring.stage;
      const std::uint32_t parity = ring.parity;
      ring.advance();
      const bool mine = turn == 0;
      turn = mine ? Config::preparing_warps - 1 : turn - 1;
      if (!mine) continue;
      if (!known) {
        ptx::mbarrier_wait(&shared.query_ready[n % 2], n / 2 & 1);
        query_down = query_scale(shared, n).down;
        known = true;
      }
      // The stage's tile before may be the other warp's (an odd number of stages), and copies land
      // in any order: until it is ready, the barriers below may be a whole phase behind, and would
      // let this warp pass before its own tile is there.
      ptx::mbarrier_wait(&shared.ready[stage], parity ^ 1);
      ptx::mbarrier_wait(&shared.keys_full[stage], parity);
      ptx::mbarrier_wait(&shared.values_full[stage], parity);
      const int begin = first - tile * prefill_tile_keys;
      const int end = block.context - tile * prefill_tile_keys;
      if (Config::scaled) prepare_columns(p, shared, stage, query_down, begin, end);
      if (begin > 0 || end < prefill_tile_keys) {
        clear_transposed_values<Config::head_dim, 32>(shared.values[stage][0], begin, end);
        clear_transposed_values<Config::head_dim, 32>(shared.values[stage][1], begin - 64,
                                                      end - 64);
      }
      ptx::fence_async_shared();
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(&shared.ready[stage]);
    }
    release_item(shared, n);
  }
}

}  // namespace octet
