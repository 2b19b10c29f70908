// The Hopper prefill kernel for e4m3 keys and values. Internal to src/ops/attention; the design and
// its figures are in docs/kernels/prefill_sm90.md.
//
// A block fills a multiprocessor and stays: two warpgroups that compute, 64 rows each, and one
// whose warps hand out work, load pages and prepare what lies beside them. For a tile of 128 keys:
//   S = Q K^T                       rows are the tensor core's 64, keys its columns
//   w = round(exp2(S - M))          M: the tile's own maximum, a power of two
//   T = w V                         from zero, then O = O * alpha + T * beta in float32
// The registers that hold S become the next product's A operand as they are (kv/element_order.h),
// and the row sum is eight more columns of V. S of the next tile is multiplied while T is.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "core/cuda/ptx.cuh"
#include "core/cuda/wgmma_e4m3.cuh"
#include "ops/attention/prefill_sm90_load.cuh"
#include "ops/attention/prefill_sm90_parameters.h"
#include "ops/attention/prefill_sm90_shared.cuh"

namespace octet {

// A computing thread has rows `row` and `row` + 8 of its warpgroup's 64. What it knows of them is
// found anew from the item where it is needed: registers to keep it there are not.
__device__ __forceinline__ int row_place(const PrefillBlock& item, int group, int r) {
  return item.first_row + 64 * group + 16 * static_cast<int>(threadIdx.x / 32 % 4) +
         static_cast<int>(threadIdx.x % 32 / 4) + 8 * r;
}
// The newest key that a row sees. Places past the last row see what that sees; their query is 0,
// and their output is not stored.
__device__ __forceinline__ int row_position(const PrefillParameters& p, const PrefillBlock& item,
                                            int place) {
  return item.first_position + min(place, item.rows - 1) / p.group;
}

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

// --- The tensor core's work. A descriptor's low word is all that changes.

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

// --- The softmax's work.

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
    state.last_output[sums + i] = __fmaf_rn(products[sums + i], state.beta[i / 2] * state.sum_scale,
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

// Brings scores to powers of two, times the values' scales. Some columns' factors are asked for
// ahead, as many as there are registers for: one at a time costs 40 cycles each.
template <typename Config>
struct PrefillColumns {
  float4 ahead[Config::columns_ahead];
};
template <typename Config>
__device__ __forceinline__ void fetch_columns(const PrefillShared<Config>& shared, int stage,
                                              PrefillColumns<Config>& columns) {
  if constexpr (Config::scaled) {
#pragma unroll
    for (int j = 0; j < Config::columns_ahead; ++j) {
      columns.ahead[j] = shared.columns[stage][4 * j + threadIdx.x % 4];
    }
  }
}
template <typename Config>
__device__ __forceinline__ void scale_scores(const PrefillShared<Config>& shared, int stage,
                                             PrefillColumns<Config>& columns, float (&x)[64]) {
  if constexpr (Config::scaled) {
    constexpr int ahead = Config::columns_ahead;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float4 column = columns.ahead[j % ahead];
      if (j + ahead < 16) {
        columns.ahead[j % ahead] = shared.columns[stage][4 * (j + ahead) + threadIdx.x % 4];
      }
      x[4 * j] = __fmaf_rn(x[4 * j], column.x, column.z);
      x[4 * j + 1] = __fmaf_rn(x[4 * j + 1], column.y, column.w);
      x[4 * j + 2] = __fmaf_rn(x[4 * j + 2], column.x, column.z);
      x[4 * j + 3] = __fmaf_rn(x[4 * j + 3], column.y, column.w);
    }
  }
}

__device__ __forceinline__ void mask_scores(const PrefillParameters& p, const PrefillBlock& item,
                                            int group, int first_key, float (&x)[64]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int last = row_position(p, item, row_place(item, group, r)) - first_key -
                     2 * static_cast<int>(threadIdx.x % 4);
    const int first = p.window > 0 ? last - p.window + 1 : -prefill_tile_keys;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (8 * j + i > last || 8 * j + i < first) x[4 * j + 2 * r + i] = -INFINITY;
      }
    }
  }
}

// The largest of the thread's scores of each row, as a power of two.
template <typename Config>
__device__ __forceinline__ void find_maxima(float factor, const float (&x)[64],
                                            float (&maxima)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float partial[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) partial[k] = fmaxf(x[4 * k + 2 * r], x[4 * k + 2 * r + 1]);
#pragma unroll
    for (int j = 4; j < 16; ++j) {
      partial[j % 4] = fmaxf(partial[j % 4], fmaxf(x[4 * j + 2 * r], x[4 * j + 2 * r + 1]));
    }
    maxima[r] = fmaxf(fmaxf(partial[0], partial[1]), fmaxf(partial[2], partial[3]));
    if (!Config::scaled) maxima[r] *= factor;
  }
}

// The e4m3 codes of 2^y by a polynomial, for four z = 8 (y + 7), which is the code but for
// 8 (2^f - 1 - f), f the fraction of y; and that a parabola in the distance to the next whole y
// gives to 0.04 of a step. In float16, two at a time.
__device__ __forceinline__ std::uint32_t polynomial_codes(float z0, float z1, float z2, float z3) {
  const auto codes = [](float low, float high) {
    const std::uint32_t bits = ptx::to_float16x2_positive(low, high);
    const __half2 z = *reinterpret_cast<const __half2*>(&bits);
    const __half2 eights = __float2half2_rn(12288.0f);  // whose last bit is 8
    const __half2 distance = __habs2(__hsub2(z, __hsub2(__hadd2(z, eights), eights)));
    const __half2 slope = __hfma2(distance, __float2half2_rn(0.04289f), __float2half2_rn(-0.3431f));
    const __half2 ones = __float2half2_rn(1024.0f);  // whose last bit is 1
    const __half2 code = __hadd2(__hfma2(distance, slope, z), ones);
    return *reinterpret_cast<const std::uint32_t*>(&code);
  };
  return __byte_perm(codes(z0, z1), codes(z2, z3), 0x6420);
}

// A row's weights are 2^(x - base + 5): at most 256 where x is at most 3 above the base.
inline constexpr float prefill_base_weight = 5;
inline constexpr float prefill_above_base = 3;
inline constexpr float prefill_below_base = 4;

template <typename Config>
__device__ __forceinline__ void round_weights(float factor, const float (&x)[64],
                                              const float (&row_base)[2],
                                              std::uint32_t (&weights)[4][4]) {
  const float base[2] = {prefill_base_weight - row_base[0], prefill_base_weight - row_base[1]};
  const float base_eights[2] = {__fmaf_rn(base[0], 8.0f, 56.0f), __fmaf_rn(base[1], 8.0f, 56.0f)};
#pragma unroll
  for (int g = 0; g < 8; ++g) {
    const bool polynomial = g * Config::polynomial_groups % 8 < Config::polynomial_groups;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float y[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float score = x[8 * g + 4 * (i / 2) + 2 * r + i % 2];
        if (polynomial) {
          y[i] = __fmaf_rn(score, Config::scaled ? 8.0f : 8.0f * factor, base_eights[r]);
        } else {
          y[i] = ptx::exp2_approximate(Config::scaled ? score + base[r]
                                                      : __fmaf_rn(score, factor, base[r]));
        }
      }
      weights[g / 2][2 * (g % 2) + r] =
          polynomial ? polynomial_codes(y[0], y[1], y[2], y[3])
                     : ptx::to_e4m3x2(y[0], y[1]) | ptx::to_e4m3x2(y[2], y[3]) << 16;
    }
  }
}

// A base is kept while it fits, so that nothing waits for a row's maximum, which its four lanes
// would have to tell each other: no weight of the warp may be above 256, and the largest of each
// row must be within some powers of two of that.
template <typename Config>
__device__ __forceinline__ bool bases_fit(const PrefillState<Config>& state,
                                          const float (&maxima)[2]) {
  const bool below = maxima[0] <= state.base[0] + prefill_above_base &&
                     maxima[1] <= state.base[1] + prefill_above_base;
  // A row's four lanes are neighbours: one of them must have a score that is large enough.
  unsigned large = ~0u;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    unsigned lanes = __ballot_sync(~0u, maxima[r] > state.base[r] - prefill_below_base);
    lanes |= lanes >> 1;
    lanes |= lanes >> 2;
    large &= lanes;
  }
  return __all_sync(~0u, below) && (large & 0x11111111u) == 0x11111111u;
}

// Makes each row's maximum, rounded up, its base.
template <typename Config>
__device__ __forceinline__ void move_bases(PrefillState<Config>& state, const float (&maxima)[2]) {
  float alpha[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float maximum = maxima[r];
    maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, 1));
    maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, 2));
    // A row that sees no key of the tile keeps its base.
    if (maximum > prefill_no_score) state.base[r] = ceilf(maximum);
    const float before = state.maximum[r];
    state.maximum[r] = fmaxf(before, state.base[r]);
    alpha[r] = ptx::exp2_approximate(before - state.maximum[r]);
    state.beta[r] = ptx::exp2_approximate(state.base[r] - state.maximum[r]);
  }
  if (!__any_sync(~0u, alpha[0] != 1 || alpha[1] != 1)) return;
#pragma unroll
  for (int chunk = 0; chunk < Config::chunks - 1; ++chunk) {
#pragma unroll
    for (int i = 0; i < 32; ++i) state.output[chunk][i] *= alpha[i / 2 % 2];
  }
#pragma unroll
  for (int i = 0; i < Config::last_registers; ++i) state.last_output[i] *= alpha[i / 2 % 2];
}

// The tile's weights. The bases of the tile before are taken for this one's, so that nothing waits
// for a maximum; where they do not fit, which few tiles of a sequence see, the weights are computed
// once more.
template <typename Config>
__device__ __forceinline__ void compute_weights(float factor, bool masked, const float (&x)[64],
                                                PrefillState<Config>& state,
                                                std::uint32_t (&weights)[4][4]) {
  float maxima[2];
  bool settled = masked;
  if (masked) {
    find_maxima<Config>(factor, x, maxima);
    move_bases(state, maxima);
  }
#pragma unroll 1
  while (true) {
    round_weights<Config>(factor, x, state.base, weights);
    find_maxima<Config>(factor, x, maxima);
    if (settled || bases_fit(state, maxima)) break;
    move_bases(state, maxima);
    settled = true;
  }
}

// --- An item.

// The item's query rows as e4m3, scaled by a power of two: A operands in registers, or rows in
// shared memory.
template <typename Config>
__device__ __forceinline__ float load_query(const PrefillParameters& p,
                                            PrefillShared<Config>& shared, const PrefillBlock& item,
                                            int group, int n,
                                            std::uint32_t (&query)[Config::query_steps][4]) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32 % 4;
  const __nv_bfloat16* from[2];
  bool valid[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int place = row_place(item, group, r);
    valid[r] = place < item.rows;
    from[r] = static_cast<const __nv_bfloat16*>(p.query) +
              (item.query_row + place / p.group) * p.query_stride +
              (item.kv_head * p.group + place % p.group) * Config::head_dim + 4 * (lane % 4);
  }
  // a[i] of a step: row i % 2, k = 16 (i / 2) + 4 (lane % 4) and the next three.
  uint2 raw[Config::query_steps][4];
#pragma unroll
  for (int step = 0; step < Config::query_steps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      raw[step][i] = make_uint2(0, 0);
      if (valid[i % 2]) {
        raw[step][i] = *reinterpret_cast<const uint2*>(from[i % 2] + 32 * step + 16 * (i / 2));
      }
    }
  }
  __nv_bfloat162 largest = __float2bfloat162_rn(0.0f);
#pragma unroll
  for (int step = 0; step < Config::query_steps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      largest =
          __hmax2(largest, __habs2(*reinterpret_cast<const __nv_bfloat162*>(&raw[step][i].x)));
      largest =
          __hmax2(largest, __habs2(*reinterpret_cast<const __nv_bfloat162*>(&raw[step][i].y)));
    }
  }
  float maximum = fmaxf(__low2float(largest), __high2float(largest));
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, step));
  }
  if (lane == 0) {
    shared.query_maximum[n % 2][4 * group + warp] = maximum;
    ptx::mbarrier_arrive(&shared.query_ready);
  }
  ptx::mbarrier_wait(&shared.query_ready, n & 1);
  const PrefillQueryScale scale = query_scale(shared, n);
#pragma unroll
  for (int step = 0; step < Config::query_steps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 low =
          __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&raw[step][i].x));
      const float2 high =
          __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&raw[step][i].y));
      const std::uint32_t codes = ptx::to_e4m3x2(low.x * scale.up, low.y * scale.up) |
                                  ptx::to_e4m3x2(high.x * scale.up, high.y * scale.up) << 16;
      if constexpr (Config::query_in_registers) {
        query[step][i] = codes;
      } else {
        constexpr int row_bytes = Config::panel_row;
        const int row = 16 * warp + lane / 4 + 8 * (i % 2);
        const int column = 32 * step + 16 * (i / 2) + 4 * (lane % 4);
        const int offset = row * row_bytes + column % row_bytes;
        *reinterpret_cast<std::uint32_t*>(
            shared.query[group] + column / row_bytes * 64 * row_bytes +
            (offset ^ (offset / 128 % (row_bytes / 16) * 16))) = codes;
      }
    }
  }
  if constexpr (!Config::query_in_registers) {
    ptx::fence_async_shared();
    ptx::warpgroup_barrier(group);
  }
  return scale.down;
}

template <typename Config>
__device__ __forceinline__ void store_pair(const PrefillParameters& p, std::int64_t at, float low,
                                           float high) {
  if (p.output_float32) {
    *reinterpret_cast<float2*>(static_cast<float*>(p.output) + at) = make_float2(low, high);
  } else {
    *reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(p.output) + at) =
        __floats2bfloat162_rn(low, high);
  }
}

template <typename Config>
__device__ __forceinline__ void store_output(const PrefillParameters& p, const PrefillBlock& item,
                                             int group, const PrefillState<Config>& state) {
  const int lane = threadIdx.x % 32;
  constexpr int sums = Config::last_registers - 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    // Columns 0, 1 and 2 of the sums are terms, each in sixteenths of the one before; lanes 0 and 1
    // of a row's four hold them.
    const float low = state.last_output[sums + 2 * r];
    const float high = state.last_output[sums + 2 * r + 1];
    float sum = lane % 4 == 0 ? low + high * 0x1p-4f : lane % 4 == 1 ? low * 0x1p-8f : 0.0f;
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const float scale = 1.0f / sum;
    const int place = row_place(item, group, r);
    if (place >= item.rows) continue;
    const std::int64_t at = (item.query_row + place / p.group) * p.output_stride +
                            (item.kv_head * p.group + place % p.group) * Config::head_dim +
                            2 * (lane % 4);
#pragma unroll
    for (int chunk = 0; chunk < Config::chunks - 1; ++chunk) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        store_pair<Config>(p, at + 64 * chunk + 8 * j, state.output[chunk][4 * j + 2 * r] * scale,
                           state.output[chunk][4 * j + 2 * r + 1] * scale);
      }
    }
#pragma unroll
    for (int j = 0; j < sums / 4; ++j) {
      store_pair<Config>(p, at + 64 * (Config::chunks - 1) + 8 * j,
                         state.last_output[4 * j + 2 * r] * scale,
                         state.last_output[4 * j + 2 * r + 1] * scale);
    }
  }
}

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
    if (masked) mask_scores(p, item, group, first_key, x);
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
    if (!seen.all(first_key)) mask_scores(p, item, group, first_key, x);
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
