// What the parts of the prefill kernel share: its shape and its shared memory. Internal to
// src/ops/attention.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "core/cuda/ptx.cuh"
#include "ops/attention/prefill_sm90_parameters.h"

namespace octet {

// Below every score, yet finite: the difference of two of them is 0 and not NaN.
inline constexpr float prefill_no_score = -1e30f;

// The format of the keys, to which the query is rounded too; values are e4m3 beside either.
enum class PrefillKeys { fp8, int8 };

// What all kernels' shapes have.
template <int head_dim_, bool scaled_, int stages_>
struct PrefillShape {
  static constexpr int head_dim = head_dim_;
  static constexpr bool scaled = scaled_;  // whether each token has its scales
  static constexpr int stages = stages_;   // of tiles in flight
  static constexpr int stage_pages = 2;
  static constexpr int row_groups = 2;  // of 64 rows: an item's
  static constexpr int panel_row = head_dim < 128 ? head_dim : 128;
  static constexpr int panels = head_dim / panel_row;
  static constexpr int page_side_bytes = 64 * head_dim;
  static constexpr int scale_bytes = scaled ? 256 : 0;
  // Eight more rows below the values', the "inverses": the row sums are their products.
  static constexpr int value_page_bytes = page_side_bytes + 512;
  // The values' columns are multiplied in chunks of 64, the last with the inverses.
  static constexpr int chunks = head_dim / 64;
  static constexpr int last_columns = head_dim - 64 * (chunks - 1) + 8;
  static constexpr int last_registers = last_columns / 2;
  static constexpr int query_steps = head_dim / 32;
  // Scores are float16. The largest norm of a query row comes to [2^(e - 1), 2^e), with rounding
  // less than 2^e * 17 / 16; that of a key is at most 448 sqrt(head_dim) (int8: 127); so that no
  // product is above 65504.
  static constexpr int query_exponent = prefill_query_exponent(head_dim);
};

// polynomial_groups: of eight groups of weights, how many are computed by a polynomial instead of
// the special-function unit.
template <int head_dim_, bool scaled_, int stages_, int polynomial_groups_,
          PrefillKeys keys_ = PrefillKeys::fp8>
struct PrefillConfig : PrefillShape<head_dim_, scaled_, stages_> {
  static constexpr PrefillKeys keys = keys_;
  static constexpr int polynomial_groups = polynomial_groups_;
  static constexpr int threads = 128 * 3;  // two warpgroups compute, one loads
  static constexpr int preparing_warps = 1;
  static constexpr int item_users = 8;  // warps that take items, beside those
  static constexpr int stage_users = 8;
  static constexpr int query_bytes = 64 * head_dim_;
  static constexpr int weight_bytes = 0;
};

// turns: whether the weighers take turns at the special-function unit; registers: of a thread of
// each role.
template <int head_dim_, bool scaled_, int stages_, int polynomial_groups_, bool turns_,
          int weigher_registers_, int adder_registers_, int loader_registers_,
          PrefillKeys keys_ = PrefillKeys::fp8>
struct PrefillRolesConfig : PrefillShape<head_dim_, scaled_, stages_> {
  static constexpr PrefillKeys keys = keys_;
  static constexpr int polynomial_groups = polynomial_groups_;
  static constexpr bool turns = turns_;
  static constexpr int weigher_registers = weigher_registers_;
  static constexpr int adder_registers = adder_registers_;
  static constexpr int loader_registers = loader_registers_;
  static_assert(2 * weigher_registers + adder_registers + loader_registers <= 512);
  static constexpr int threads = 128 * 4;
  static constexpr int preparing_warps = 2;
  static constexpr int item_users = 12;
  static constexpr int stage_users = 12;
  static constexpr int query_bytes = 0;
  static constexpr int weight_bytes = 64 * prefill_tile_keys;
};

template <typename Config>
struct PrefillShared {
  static constexpr int stages = Config::stages;
  // [panel][page][64 tokens][panel_row], swizzled.
  alignas(1024) std::uint8_t keys[stages][Config::stage_pages * Config::page_side_bytes];
  // [head_dim + 8 rows][64 tokens], swizzled.
  alignas(1024) std::uint8_t values[stages][Config::stage_pages][Config::value_page_bytes];
  alignas(1024)
      std::uint8_t query[Config::row_groups][Config::query_bytes > 0 ? Config::query_bytes : 16];
  // [64 rows][128 keys], swizzled, of each group of rows; two of them in turn.
  alignas(1024) std::uint8_t
      weights[Config::row_groups][2][Config::weight_bytes > 0 ? Config::weight_bytes : 16];
  float2 row_factors[Config::row_groups][2][64];     // beta and alpha that go with them
  alignas(16) std::uint16_t scales[stages][2][128];  // bfloat16: 64 of keys, 64 of values
  // Of two neighbouring keys, in float16: their scales times the query's and the softmax's, and the
  // values' scales as powers of two. A thread's share of two eights of keys are neighbours:
  // [sixteens][4 threads][2 eights].
  alignas(16) uint2 columns[stages][prefill_tile_keys / 2];
  // What a tile's products must be multiplied by, and beside that those with the inverses.
  float2 tile_factors[stages];
  PrefillBlock items[2];                           // work in hand, and the next
  float query_squares[2][4 * Config::row_groups];  // the largest squared norm of a warp's rows
  // The newest key that each row of the item sees, and beside int8 keys the factor of its scores;
  // every warp writes and reads its own 16.
  std::int32_t positions[Config::row_groups][64];
  float score_factors[Config::row_groups][64];
  std::uint64_t keys_full[stages];
  std::uint64_t values_full[stages];
  // Keys and values are there, and the values' last rows and the columns' factors written.
  std::uint64_t ready[stages];
  std::uint64_t empty[stages];
  std::uint64_t weights_full[Config::row_groups][2];
  std::uint64_t weights_empty[Config::row_groups][2];
  std::uint64_t item_full[2];
  std::uint64_t item_empty[2];
  // Every warp has told its query's largest norm. One for every second item: whoever has not
  // released an item keeps its barrier in the item's phase or the next, so that a wait is never a
  // phase early or late, whether or not a warp had a tile of the items before.
  std::uint64_t query_ready[2];
};

// Dynamic shared memory begins at a multiple of 16 only. Moved on by pointer arithmetic: an address
// made from an integer would no longer be known to lie in shared memory.
template <typename Config>
__device__ __forceinline__ PrefillShared<Config>& align_shared(std::uint8_t* start) {
  return *reinterpret_cast<PrefillShared<Config>*>(
      start + (1024 - ptx::shared_address(start) % 1024) % 1024);
}

template <typename Config>
__device__ void initialise_barriers(PrefillShared<Config>& shared) {
  for (int stage = 0; stage < Config::stages; ++stage) {
    ptx::mbarrier_init(&shared.keys_full[stage], 1);
    ptx::mbarrier_init(&shared.values_full[stage], 1);
    ptx::mbarrier_init(&shared.ready[stage], 1);
    ptx::mbarrier_init(&shared.empty[stage], Config::stage_users);
  }
  for (int i = 0; i < 2; ++i) {
    ptx::mbarrier_init(&shared.query_ready[i], 4 * Config::row_groups);
    ptx::mbarrier_init(&shared.item_full[i], 1);
    ptx::mbarrier_init(&shared.item_empty[i], Config::item_users + Config::preparing_warps);
    for (int group = 0; group < Config::row_groups; ++group) {
      ptx::mbarrier_init(&shared.weights_full[group][i], 4);
      ptx::mbarrier_init(&shared.weights_empty[group][i], 4);
    }
  }
  ptx::mbarrier_init_fence();
}

// The stages that an item's pages fill, [first, last); the last is the first to be asked for.
template <typename Config>
struct PrefillStages {
  int first;
  int last;

  __device__ __forceinline__ explicit PrefillStages(const PrefillBlock& item)
      : first(item.first_tile), last(item.last_tile) {
    if constexpr (Config::stage_pages == 1) {
      first = item.first_key / 64;
      last = min(2 * item.last_tile, (item.context + 63) / 64);
    }
  }
};

// The place in a ring of stages.
template <int stages>
struct PrefillRing {
  int stage = 0;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Waits for the n-th item. Whoever took it must release it.
template <typename Config>
__device__ __forceinline__ const PrefillBlock& take_item(PrefillShared<Config>& shared, int n) {
  ptx::mbarrier_wait(&shared.item_full[n % 2], n / 2 & 1);
  return shared.items[n % 2];
}
template <typename Config>
__device__ __forceinline__ void release_item(PrefillShared<Config>& shared, int n) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.item_empty[n % 2]);
}

// The power of two that the item's query rows are multiplied by, and its inverse.
struct PrefillQueryScale {
  float up;
  float down;
};
template <typename Config>
__device__ __forceinline__ PrefillQueryScale query_scale(const PrefillShared<Config>& shared,
                                                         int n) {
  float largest = 0;
#pragma unroll
  for (int warp = 0; warp < 4 * Config::row_groups; ++warp) {
    largest = fmaxf(largest, shared.query_squares[n % 2][warp]);
  }
  // The norm's exponent is half of its square's, rounded down.
  const int exponent = 127 + ((static_cast<int>(__float_as_uint(largest) >> 23) - 127) >> 1);
  return {__uint_as_float(static_cast<unsigned>(253 + Config::query_exponent - exponent) << 23),
          __uint_as_float(static_cast<unsigned>(exponent + 1 - Config::query_exponent) << 23)};
}

}  // namespace octet
