// Prefill on tensor cores of 16 bits. Internal to src/ops/attention; docs/kernels/attention_cuda.md
// says why it is so.
//
// A block takes a tile of rows of one KV head and goes over its keys, tile by tile; while it
// multiplies one tile, the next is on its way. Every warp has sixteen rows: scores in registers
// become weights, the next product's A operand.
#pragma once

#include "core/cuda/launch.cuh"
#include "ops/attention/attention_prefill_cuda_load.cuh"

namespace octet {

template <typename Config>
struct AttentionPrefillState {
  static constexpr int output_tiles = Config::head_dim / 8 / Config::dimension_warps;
  static constexpr int query_steps = Config::query_in_registers ? Config::head_dim / 16 : 1;
  std::uint32_t query[query_steps][4];
  float output[output_tiles][4];
  // Of rows g and g + 8.
  float factor[2];
  float mean[2];
  int position[2];
  float maximum[2];
  float sum[2];  // of this lane's keys
};

template <typename Config>
using AttentionPrefillScores = float[Config::tile_keys / 8][4];

// A warp's view of matrices in shared memory: where this lane's rows begin, for load_matrices().
struct PrefillLanes {
  int warp_row;   // the warp's first row
  int dimension;  // its first output dimension
  // A operand (queries): 16 rows x 16; B operand (keys, transposed values): 16 columns x 16.
  int a_row;
  int a_piece;
  int b_row;
  int b_piece;
  template <typename Config>
  static __device__ __forceinline__ PrefillLanes make() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    PrefillLanes lanes;
    lanes.warp_row = warp % Config::row_warps * 16;
    lanes.dimension = warp / Config::row_warps * (Config::head_dim / Config::dimension_warps);
    lanes.a_row = lane % 16;
    lanes.a_piece = lane / 16;
    lanes.b_row = lane % 8 + lane / 16 * 8;
    lanes.b_piece = lane / 8 % 2;
    return lanes;
  }
};

// The rows of the tile as 16-bit operands, in panels, and what their scores are multiplied by.
template <typename Config>
__device__ __forceinline__ void load_prefill_query(const AttentionParameters& p,
                                                   const AttentionPrefillTile& tile, int kv_head,
                                                   std::uint8_t* to,
                                                   AttentionPrefillShared<Config>& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool is_bfloat16 = p.key.dtype == KvDtype::bfloat16;
  const float key_scale = p.key.static_scales != nullptr ? p.key.static_scales[kv_head] : 1.0f;
#pragma unroll 1
  for (int row = static_cast<int>(threadIdx.x) / 32; row < Config::tile_rows;
       row += Config::warps) {
    const int of_sequence = tile.first_row + row;
    const bool exists = of_sequence < tile.rows;
    const int head = kv_head * p.group + of_sequence % p.group;
    const std::int64_t query_row = tile.query_row + of_sequence / p.group;
    const __nv_bfloat16* from = p.query + query_row * p.query_stride + head * p.head_dim;
    float2 pairs[Config::head_dim / 64];
    float largest = 0;
#pragma unroll
    for (int i = 0; i < Config::head_dim / 64; ++i) {
      const int element = 64 * i + 2 * lane;
      pairs[i] = make_float2(0, 0);
      if (exists && element < p.head_dim) {
        pairs[i] = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(from + element));
      }
      largest = fmaxf(largest, fmaxf(fabsf(pairs[i].x), fabsf(pairs[i].y)));
    }
    const QueryScale scale(is_bfloat16 ? 0.0f : warp_maximum(largest));
#pragma unroll
    for (int i = 0; i < Config::head_dim / 64; ++i) {
      const std::uint32_t packed =
          is_bfloat16 ? Bfloat16Product::pack(pairs[i].x, pairs[i].y)
                      : Float16Product::pack(pairs[i].x * scale.factor, pairs[i].y * scale.factor);
      *reinterpret_cast<std::uint32_t*>(
          to + panel_offset<Config::tile_rows>(row, 8 * i + lane / 4) + lane % 4 * 4) = packed;
    }
    if (lane == 0) {
      shared.query_factor[row] = p.scale_log2 * scale.inverse * key_scale;
      shared.query_mean[row] = exists && p.query_means != nullptr
                                   ? p.scale_log2 * p.query_means[query_row * p.query_heads + head]
                                   : 0.0f;
    }
  }
}

template <typename Config, typename Product>
__device__ __forceinline__ void multiply_prefill_keys(const AttentionPrefillState<Config>& state,
                                                      const PrefillLanes& lanes,
                                                      std::uint32_t query, std::uint32_t keys,
                                                      AttentionPrefillScores<Config>& scores) {
  query += panel_offset<Config::tile_rows>(lanes.warp_row + lanes.a_row, lanes.a_piece);
  keys += panel_offset<Config::tile_keys>(lanes.b_row, lanes.b_piece);
#pragma unroll
  for (int step = 0; step < Config::head_dim / 16; ++step) {
    std::uint32_t a[4];
    if constexpr (Config::query_in_registers) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = state.query[step][i];
    } else {
      load_matrices(a, (query ^ (step % 4 * 32)) + step / 4 * (Config::tile_rows * 128));
    }
#pragma unroll
    for (int pair = 0; pair < Config::tile_keys / 16; ++pair) {
      std::uint32_t b[4];
      load_matrices(
          b, (keys ^ (step % 4 * 32)) + step / 4 * (Config::tile_keys * 128) + pair * (16 * 128));
      Product::add(scores[2 * pair], a, b[0], b[1]);
      Product::add(scores[2 * pair + 1], a, b[2], b[3]);
    }
  }
}

template <typename Config, typename Product>
__device__ __forceinline__ void multiply_prefill_values(
    const AttentionPrefillScores<Config>& weights, const PrefillLanes& lanes, std::uint32_t values,
    AttentionPrefillState<Config>& state) {
  values +=
      Config::value_codes
          ? transposed_piece_offset<Config::tile_keys>(lanes.dimension + lanes.b_row, lanes.b_piece)
          : panel_offset<Config::tile_keys>(lanes.a_row, lanes.dimension / 8 + lanes.a_piece);
#pragma unroll
  for (int step = 0; step < Config::tile_keys / 16; ++step) {
    const float(&low)[4] = weights[2 * step];
    const float(&high)[4] = weights[2 * step + 1];
    const std::uint32_t a[4] = {Product::pack(low[0], low[1]), Product::pack(low[2], low[3]),
                                Product::pack(high[0], high[1]), Product::pack(high[2], high[3])};
#pragma unroll
    for (int pair = 0; pair < AttentionPrefillState<Config>::output_tiles / 2; ++pair) {
      std::uint32_t b[4];
      if constexpr (Config::value_codes) {
        load_matrices(b, (values ^ (step * 32)) + pair * (16 * Config::tile_keys * 2));
      } else {
        load_matrices_transposed(b, (values ^ (pair % 4 * 32)) +
                                        pair / 4 * (Config::tile_keys * 128) + step * (16 * 128));
      }
      Product::add(state.output[2 * pair], a, b[0], b[1]);
      Product::add(state.output[2 * pair + 1], a, b[2], b[3]);
    }
  }
}

// Scores to weights, as decode does it. `first_key`: of the tile.
template <typename Config>
__device__ __forceinline__ void weigh_prefill_tile(const AttentionParameters& p,
                                                   const PrefillScales<Config::tile_keys>& scales,
                                                   int first_key,
                                                   AttentionPrefillScores<Config>& scores,
                                                   AttentionPrefillState<Config>& state) {
  constexpr int tiles = Config::tile_keys / 8;
  constexpr bool codes = Config::key_codes || Config::value_codes;
  const int column = 2 * (static_cast<int>(threadIdx.x) % 4);
  const bool is_scaled = codes && (p.key.is_scaled || p.value.is_scaled);
  const bool is_capped = p.soft_cap_log2 > 0;
#pragma unroll
  for (int t = 0; t < tiles; ++t) {
    // Of two neighbouring keys, factor and addend each.
    float4 scale = {1, 0, 1, 0};
    if (is_scaled) scale = *reinterpret_cast<const float4*>(&scales.score[8 * t + column]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& score = scores[t][i];
      const float factor =
          is_scaled ? state.factor[i / 2] * (i % 2 == 0 ? scale.x : scale.z) : state.factor[i / 2];
      const float addend = i % 2 == 0 ? scale.y : scale.w;
      if (is_capped) {
        score = addend + soft_capped(fmaf(score, factor, state.mean[i / 2]), p.soft_cap_log2);
      } else {
        score = is_scaled ? fmaf(score, factor, addend) : score * factor;
      }
    }
  }
  // The last key of the tile is past some row's position, or its first before some row's window.
  const int last_key = first_key + Config::tile_keys - 1;
  const bool is_cut =
      last_key > min(state.position[0], state.position[1]) ||
      (p.window > 0 && first_key <= max(state.position[0], state.position[1]) - p.window);
  if (__any_sync(~0u, is_cut)) {
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first_key + 8 * t + column + i % 2;
        const int position = state.position[i / 2];
        if (key > position || (p.window > 0 && key <= position - p.window)) {
          scores[t][i] = -INFINITY;
        }
      }
    }
  }
  float highest[2];
  bool grows = false;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float x = fmaxf(scores[0][2 * row], scores[0][2 * row + 1]);
#pragma unroll
    for (int t = 1; t < tiles; ++t) {
      x = fmaxf(x, fmaxf(scores[t][2 * row], scores[t][2 * row + 1]));
    }
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 2));
    highest[row] = x;
    grows |= x > state.maximum[row] + 8.0f;
  }
  if (__any_sync(~0u, grows)) {
    float factor[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float maximum = fmaxf(state.maximum[row], highest[row]);
      factor[row] = ptx::exp2_approximate(state.maximum[row] - maximum);
      state.maximum[row] = maximum;
      state.sum[row] *= factor[row];
    }
#pragma unroll
    for (auto& tile : state.output) {
#pragma unroll
      for (int i = 0; i < 4; ++i) tile[i] *= factor[i / 2];
    }
  }
#pragma unroll
  for (int t = 0; t < tiles; ++t) {
    float2 inverse = {1, 1};
    if (is_scaled) inverse = *reinterpret_cast<const float2*>(&scales.inverse[8 * t + column]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float weight = ptx::exp2_approximate(scores[t][i] - state.maximum[i / 2]);
      if (is_scaled) {
        state.sum[i / 2] = fmaf(weight, i % 2 == 0 ? inverse.x : inverse.y, state.sum[i / 2]);
      } else {
        state.sum[i / 2] += weight;
      }
      scores[t][i] = weight;
    }
  }
}

template <typename Config>
__device__ __forceinline__ void store_prefill_output(const AttentionParameters& p,
                                                     const AttentionPrefillTile& tile, int kv_head,
                                                     const PrefillLanes& lanes,
                                                     const AttentionPrefillState<Config>& state) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float value_scale =
      p.value.static_scales != nullptr ? p.value.static_scales[kv_head] : 1.0f;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = state.sum[half];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const int row = tile.first_row + lanes.warp_row + lane / 4 + 8 * half;
    if (row >= tile.rows) continue;
    const int head = kv_head * p.group + row % p.group;
    if (p.sinks != nullptr) {
      const float missing = p.soft_cap_log2 > 0 ? 0.0f : state.mean[half];
      sum +=
          ptx::exp2_approximate(fmaf(p.sinks[head], 1.44269504f, -missing) - state.maximum[half]);
    }
    const float factor = value_scale / sum;
    __nv_bfloat16* to = p.output + (tile.query_row + row / p.group) * p.output_stride +
                        head * p.head_dim + lanes.dimension + lane % 4 * 2;
#pragma unroll
    for (int t = 0; t < AttentionPrefillState<Config>::output_tiles; ++t) {
      if (lanes.dimension + 8 * t >= p.head_dim) break;
      *reinterpret_cast<__nv_bfloat162*>(to + 8 * t) = __floats2bfloat162_rn(
          state.output[t][2 * half] * factor, state.output[t][2 * half + 1] * factor);
    }
  }
}

template <typename Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks)
    attention_prefill_kernel(const __grid_constant__ AttentionPrefillParameters parameters) {
  extern __shared__ __align__(128) std::byte bytes[];
  auto& shared = *reinterpret_cast<AttentionPrefillShared<Config>*>(bytes);
  let_next_kernel_begin();
  begin_after_previous_kernels();

  const AttentionParameters& p = parameters.common;
  const AttentionPrefillTile tile = parameters.tiles[blockIdx.x / p.kv_heads];
  const int kv_head = static_cast<int>(blockIdx.x) % p.kv_heads;
  const auto lanes = PrefillLanes::make<Config>();
  const int lane = static_cast<int>(threadIdx.x) % 32;

  // The query goes to the stage that is not filled first.
  std::uint8_t* query =
      Config::query_in_registers ? shared.stages[(tile.first_keys + 1) % 2].key : shared.query;
  const std::int32_t* pages =
      p.page_table + static_cast<std::int64_t>(tile.sequence) * p.page_table_stride;
  const auto page_of = [&](int keys) {
    return pages[min(keys, tile.end_keys - 1) / (page_tokens / Config::tile_keys)];
  };
  PrefillTileLoad<Config> load;
  load.begin(p, tile, kv_head, tile.first_keys, page_of(tile.first_keys), shared);
  std::int32_t next_page = page_of(tile.first_keys + 1);
  load_prefill_query<Config>(p, tile, kv_head, query, shared);
  load.finish(p, tile.first_keys, shared);
  __syncthreads();

  AttentionPrefillState<Config> state;
  if constexpr (Config::query_in_registers) {
#pragma unroll
    for (int step = 0; step < Config::head_dim / 16; ++step) {
      load_matrices(
          state.query[step],
          ptx::shared_address(query) + panel_offset<Config::tile_rows>(lanes.warp_row + lanes.a_row,
                                                                       2 * step + lanes.a_piece));
    }
  }
#pragma unroll
  for (auto& of_tile : state.output) {
#pragma unroll
    for (float& x : of_tile) x = 0;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = lanes.warp_row + lane / 4 + 8 * half;
    state.factor[half] = shared.query_factor[row];
    state.mean[half] = shared.query_mean[row];
    state.position[half] = tile.first_position + min(tile.first_row + row, tile.rows - 1) / p.group;
    state.maximum[half] = attention_no_score;
    state.sum[half] = 0;
  }

#pragma unroll 1
  for (int keys = tile.first_keys; keys < tile.end_keys; ++keys) {
    wait_for_copies_but<0>();
    __syncthreads();  // the tile is whole, and the other stage is free
    const bool has_next = keys + 1 < tile.end_keys;
    if (has_next) load.begin(p, tile, kv_head, keys + 1, next_page, shared);
    next_page = page_of(keys + 2);

    const auto& stage = shared.stages[keys % 2];
    const std::uint32_t key_address = ptx::shared_address(stage.key);
    const std::uint32_t value_address = ptx::shared_address(stage.value);
    const std::uint32_t query_address = ptx::shared_address(shared.query);
    AttentionPrefillScores<Config> scores = {};
    if (!Config::key_codes && p.key.dtype == KvDtype::bfloat16) {
      multiply_prefill_keys<Config, Bfloat16Product>(state, lanes, query_address, key_address,
                                                     scores);
    } else {
      multiply_prefill_keys<Config, Float16Product>(state, lanes, query_address, key_address,
                                                    scores);
    }
    weigh_prefill_tile<Config>(p, shared.scales[keys % 2], keys * Config::tile_keys, scores, state);
    if (!Config::value_codes && p.value.dtype == KvDtype::bfloat16) {
      multiply_prefill_values<Config, Bfloat16Product>(scores, lanes, value_address, state);
    } else {
      multiply_prefill_values<Config, Float16Product>(scores, lanes, value_address, state);
    }
    if (has_next) load.finish(p, keys + 1, shared);
  }
  store_prefill_output<Config>(p, tile, kv_head, lanes, state);
}

template <typename Config>
AttentionPrefillKernel make_attention_prefill_kernel() {
  return {attention_prefill_kernel<Config>, sizeof(AttentionPrefillShared<Config>), Config::threads,
          Config::tile_rows, Config::tile_keys};
}

// Sides of 8 bits are converted once for a tile's rows, so that twice as many rows pay half as
// much.
template <int head_dim, int row_warps, int code_row_warps, int dimension_warps, int tile_keys>
AttentionPrefillKernel pick_attention_prefill_kernel(bool key_codes, bool value_codes) {
  using Rows =
      AttentionPrefillConfig<head_dim, row_warps, dimension_warps, tile_keys, false, false>;
  using KeyRows =
      AttentionPrefillConfig<head_dim, code_row_warps, dimension_warps, tile_keys, false, true>;
  using ValueRows =
      AttentionPrefillConfig<head_dim, code_row_warps, dimension_warps, tile_keys, true, false>;
  using Codes =
      AttentionPrefillConfig<head_dim, code_row_warps, dimension_warps, tile_keys, true, true>;
  if (key_codes) {
    return value_codes ? make_attention_prefill_kernel<Codes>()
                       : make_attention_prefill_kernel<ValueRows>();
  }
  return value_codes ? make_attention_prefill_kernel<KeyRows>()
                     : make_attention_prefill_kernel<Rows>();
}

}  // namespace octet
