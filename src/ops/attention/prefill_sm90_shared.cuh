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

// head_dim; whether each token has its scales; stages of tiles in flight; of eight groups of
// weights, how many are computed by a polynomial instead of the special-function unit; of a
// tile's 16 groups of columns, how many have their factors asked for ahead; whether the query is in
// registers or in shared memory.
template <int head_dim_, bool scaled_, int stages_, int polynomial_groups_, int columns_ahead_,
          bool query_in_registers_>
struct PrefillConfig {
  static constexpr int head_dim = head_dim_;
  static constexpr bool scaled = scaled_;
  static constexpr int stages = stages_;
  static constexpr int polynomial_groups = polynomial_groups_;

  static constexpr int warpgroups = 2;  // that compute; one more loads
  static constexpr int threads = 128 * (warpgroups + 1);
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
  static constexpr bool query_in_registers = query_in_registers_;
  static constexpr int columns_ahead = columns_ahead_;
  static constexpr int query_bytes = query_in_registers ? 0 : 64 * head_dim;
  static constexpr int query_steps = head_dim / 32;
};

template <typename Config>
struct PrefillShared {
  static constexpr int stages = Config::stages;
  // [panel][page][64 tokens][panel_row], swizzled.
  alignas(1024) std::uint8_t keys[stages][2 * Config::page_side_bytes];
  // [head_dim + 8 rows][64 tokens], swizzled.
  alignas(1024) std::uint8_t values[stages][2][Config::value_page_bytes];
  alignas(1024)
      std::uint8_t query[Config::warpgroups][Config::query_bytes > 0 ? Config::query_bytes : 16];
  alignas(16) std::uint16_t scales[stages][2][128];  // bfloat16: 64 of keys, 64 of values
  // Of two neighbouring keys: their scales times the query's and the softmax's, and the values'
  // scales as powers of two.
  float4 columns[stages][prefill_tile_keys / 2];
  float sum_scale[stages];  // what the products with the inverses must be multiplied by
  PrefillBlock items[2];    // work in hand, and the next
  float query_maximum[2][4 * Config::warpgroups];
  // The newest key that each row of the item sees; every warp writes and reads its own 16.
  std::int32_t positions[Config::warpgroups][64];
  std::uint64_t keys_full[stages];
  std::uint64_t values_full[stages];
  std::uint64_t ready[stages];  // the values' last rows and the columns' factors are written
  std::uint64_t empty[stages];
  std::uint64_t item_full[2];
  std::uint64_t item_empty[2];
  std::uint64_t query_ready;  // every warp knows its query's largest element
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

// The power of two that brings the item's largest query element to [128, 256), and its inverse.
// Below 2^-111 a query is as good as 0.
struct PrefillQueryScale {
  float up;
  float down;
};
template <typename Config>
__device__ __forceinline__ PrefillQueryScale query_scale(const PrefillShared<Config>& shared,
                                                         int n) {
  float largest = 0;
#pragma unroll
  for (int warp = 0; warp < 4 * Config::warpgroups; ++warp) {
    largest = fmaxf(largest, shared.query_maximum[n % 2][warp]);
  }
  const int exponent = max(static_cast<int>(__float_as_uint(largest) >> 23), 16);
  return {__uint_as_float(static_cast<unsigned>(261 - exponent) << 23),
          __uint_as_float(static_cast<unsigned>(exponent - 7) << 23)};
}

}  // namespace octet
