// Where a block's warps, and blocks, put together what each knows of a pair of sequence and unit.
// Internal to src/ops/attention.
#pragma once

#include "ops/attention/attention_decode_cuda_kernel.cuh"

namespace octet {

// A block's part of a pair in global memory: outputs still to be divided, then maxima and sums.
template <typename Config>
struct AttentionDecodePart {
  float output[Config::queries][Config::head_dim];
  float2 state[Config::queries];
};

// The pair that a block is at.
struct DecodePair {
  int sequence;
  int kv_head;
  int first_query;  // of the KV head's
  int queries;      // that there are, from it on
};

template <typename Config>
__device__ __forceinline__ void store_decode_state(AttentionDecodeShared<Config>& shared,
                                                   bool values_transposed,
                                                   AttentionDecodeState<Config>& state) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = lane / 4;
#pragma unroll
  for (int tile = 0; tile < Config::query_tiles; ++tile) {
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      const int query = 8 * tile + 2 * (lane % 4) + column;
      float sum = state.sum[tile][column];
#pragma unroll
      for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
      if (row == 0) shared.state[warp][query] = make_float2(state.maximum[tile][column], sum);
      float* output = shared.output[warp][query];
#pragma unroll
      for (int i = 0; i < Config::head_dim / 16; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int dimension = values_transposed ? 16 * i + row + 8 * half
                                                  : 64 * (i / 4) + 8 * row + 2 * (i % 4) + half;
          output[dimension] = state.output[i][tile][2 * half + column];
        }
      }
    }
  }
}

template <typename Config>
__device__ __forceinline__ void store_decode_output(const AttentionParameters& p,
                                                    const AttentionDecodeShared<Config>& shared,
                                                    const DecodePair& pair, int query,
                                                    int dimension, float output, float maximum,
                                                    float sum) {
  if (query >= pair.queries || dimension >= p.head_dim) return;
  const int head = pair.kv_head * p.group + pair.first_query + query;
  if (p.sinks != nullptr) {
    // Stored keys' scores lack the mean's, so the sink's must, but where a cap asked for true ones.
    const float missing = p.soft_cap_log2 > 0 ? 0.0f : shared.query_mean[query];
    sum += ptx::exp2_approximate(fmaf(p.sinks[head], 1.44269504f, -missing) - maximum);
  }
  const float scale = p.value.static_scales != nullptr ? p.value.static_scales[pair.kv_head] : 1.0f;
  p.output[pair.sequence * p.output_stride + head * p.head_dim + dimension] =
      __float2bfloat16_rn(output / sum * scale);
}

// The warps' parts become the pair's outputs, or, where it is not whole, the block's part.
template <typename Config>
__device__ void merge_decode_warps(const AttentionParameters& p,
                                   const AttentionDecodeShared<Config>& shared,
                                   const DecodePair& pair, AttentionDecodePart<Config>* part) {
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x); item < pair.queries * Config::head_dim;
       item += Config::threads) {
    const int query = item / Config::head_dim;
    const int dimension = item % Config::head_dim;
    float maximum = attention_no_score;
#pragma unroll
    for (int warp = 0; warp < Config::warps; ++warp) {
      maximum = fmaxf(maximum, shared.state[warp][query].x);
    }
    float sum = 0;
    float output = 0;
#pragma unroll
    for (int warp = 0; warp < Config::warps; ++warp) {
      const float2 state = shared.state[warp][query];
      const float factor = ptx::exp2_approximate(state.x - maximum);
      sum = fmaf(state.y, factor, sum);
      output = fmaf(shared.output[warp][query][dimension], factor, output);
    }
    if (part == nullptr) {
      store_decode_output<Config>(p, shared, pair, query, dimension, output, maximum, sum);
    } else {
      __stcg(&part->output[query][dimension], output);
      if (dimension == 0) __stcg(&part->state[query], make_float2(maximum, sum));
    }
  }
}

// The parts of all of a pair's blocks, in their order, whoever came last. The first block's is of
// its last pair, the others' of their first.
template <typename Config>
__device__ void merge_decode_blocks(const AttentionParameters& p,
                                    AttentionDecodeShared<Config>& shared, const DecodePair& pair,
                                    const AttentionDecodePart<Config>* parts, int blocks) {
  float2* totals = shared.state[0];
  const auto part_of = [&](int block) -> const AttentionDecodePart<Config>& {
    return parts[block == 0 ? 1 : 2 * block];
  };
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int query = static_cast<int>(threadIdx.x) / 32; query < pair.queries;
       query += Config::warps) {
    float highest = attention_no_score;
    for (int block = lane; block < blocks; block += 32) {
      highest = fmaxf(highest, __ldcg(&part_of(block).state[query]).x);
    }
    highest = warp_maximum(highest);
    float sum = 0;
    for (int block = lane; block < blocks; block += 32) {
      const float2 state = __ldcg(&part_of(block).state[query]);
      const float factor = ptx::exp2_approximate(state.x - highest);
      shared.factors[query][block] = factor;
      sum = fmaf(state.y, factor, sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) totals[query] = make_float2(highest, sum);
  }
  __syncthreads();
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x); item < pair.queries * Config::head_dim;
       item += Config::threads) {
    const int query = item / Config::head_dim;
    const int dimension = item % Config::head_dim;
    float output = 0;
#pragma unroll 8
    for (int block = 0; block < blocks; ++block) {
      output = fmaf(__ldcg(&part_of(block).output[query][dimension]), shared.factors[query][block],
                    output);
    }
    store_decode_output<Config>(p, shared, pair, query, dimension, output, totals[query].x,
                                totals[query].y);
  }
}

// The query heads of a pair as the tensor core's operands, and what their scores are multiplied by.
template <typename Config>
__device__ void load_decode_query(const AttentionParameters& p, const DecodePair& pair,
                                  AttentionDecodeShared<Config>& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool is_bfloat16 = p.key.dtype == KvDtype::bfloat16;
  const bool is_eight_bits = p.key.dtype == KvDtype::fp8 || p.key.dtype == KvDtype::int8;
  const float key_scale = p.key.static_scales != nullptr ? p.key.static_scales[pair.kv_head] : 1.0f;
#pragma unroll 1
  for (int query = static_cast<int>(threadIdx.x) / 32; query < Config::queries;
       query += Config::warps) {
    const bool exists = query < pair.queries;
    const int head = pair.kv_head * p.group + pair.first_query + query;
    const __nv_bfloat16* from = p.query + pair.sequence * p.query_stride + head * p.head_dim;
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
      const int element = 64 * i + 2 * lane;
      // Lane c of four holds 16 bytes of a key's 64: 16 elements or 8.
      const int of_lane = is_eight_bits ? 16 : 8;
      const int c = element / of_lane % 4;
      const int step = element / (4 * of_lane) * (of_lane / 4) + element % of_lane / 4;
      uint2& to = shared.query[step][query / 8][query % 8 * 4 + c];
      const std::uint32_t packed =
          is_bfloat16 ? Bfloat16Product::pack(pairs[i].x, pairs[i].y)
                      : Float16Product::pack(pairs[i].x * scale.factor, pairs[i].y * scale.factor);
      (element % 4 == 0 ? to.x : to.y) = packed;
    }
    if (lane == 0) {
      shared.query_factor[query] = p.scale_log2 * scale.inverse * key_scale;
      shared.query_mean[query] =
          exists && p.query_means != nullptr
              ? p.scale_log2 *
                    p.query_means[static_cast<std::int64_t>(pair.sequence) * p.query_heads + head]
              : 0.0f;
    }
  }
}

// Tiles of the pair's turns [turn, turn + turns), every fourth of them.
template <typename Config>
__device__ __forceinline__ void take_decode_turns(const AttentionDecodeParameters& parameters,
                                                  const AttentionDecodeShared<Config>& shared,
                                                  const DecodePair& pair, int length, int turn,
                                                  int turns, AttentionDecodeState<Config>& state) {
  constexpr int page_tiles = page_tokens / decode_tile_keys;
  const AttentionParameters& p = parameters.common;
  const DecodeTurns& of = parameters.turns;
  const int first_key = of.first_key(length);
  const int begin = of.first_page(length) + turn * of.turn_pages;
  const int end = begin + turns * of.turn_pages;
  const int first_tile = max(begin * page_tiles, first_key / decode_tile_keys);
  const int end_tile = min(end * page_tiles, (length + decode_tile_keys - 1) / decode_tile_keys);
  const std::int32_t* pages =
      p.page_table + static_cast<std::int64_t>(pair.sequence) * p.page_table_stride;
  int tile = first_tile + static_cast<int>(threadIdx.x) / 32;
  std::int32_t page = tile < end_tile ? pages[tile / page_tiles] : 0;
#pragma unroll 1
  while (tile < end_tile) {
    const int next = tile + Config::warps;
    const std::int32_t next_page = next < end_tile ? pages[next / page_tiles] : 0;
    DecodeTokens tokens = {tile * decode_tile_keys, first_key, length, false};
    tokens.all = tokens.first >= first_key && tokens.first + decode_tile_keys <= length;
    take_decode_tile<Config>(p, shared, run_of(p, page, pair.kv_head), tokens, state);
    tile = next;
    page = next_page;
  }
}

template <typename Config>
__global__ void __launch_bounds__(Config::threads)
    attention_decode_kernel(const __grid_constant__ AttentionDecodeParameters parameters) {
  extern __shared__ __align__(16) std::byte bytes[];
  auto& shared = *reinterpret_cast<AttentionDecodeShared<Config>*>(bytes);
  let_next_kernel_begin();
  begin_after_previous_kernels();

  const AttentionParameters& p = parameters.common;
  const bool values_transposed = p.value.dtype == KvDtype::fp8 || p.value.dtype == KvDtype::int8;
  DecodePiece piece = parameters.work.pieces[blockIdx.x];
  auto* parts = reinterpret_cast<AttentionDecodePart<Config>*>(parameters.parts);
#pragma unroll 1
  while (piece.turns > 0) {
    const int pair_turns = parameters.turns.turns(piece.length);
    const int turns = min(piece.turns, pair_turns - piece.turn);
    DecodePair pair;
    pair.sequence = piece.sequence;
    pair.kv_head = piece.kv_head / parameters.units_of_head;
    pair.first_query = piece.kv_head % parameters.units_of_head * Config::queries;
    pair.queries = min(p.group - pair.first_query, Config::queries);

    load_decode_query<Config>(p, pair, shared);
    __syncthreads();
    {
      AttentionDecodeState<Config> state;
      state.clear();
      take_decode_turns<Config>(parameters, shared, pair, piece.length, piece.turn, turns, state);
      store_decode_state<Config>(shared, values_transposed, state);
    }
    __syncthreads();
    const bool is_whole = turns == pair_turns;
    const int side = piece.turn > 0 ? 0 : 1;
    merge_decode_warps<Config>(p, shared, pair, is_whole ? nullptr : parts + 2 * blockIdx.x + side);
    __syncthreads();
    if (!is_whole) {
      const DecodeSharedPairs& shared_pairs = parameters.work.shared_pairs[blockIdx.x];
      const int first_block = shared_pairs.first_block[side];
      const int blocks = shared_pairs.blocks[side];
      if (threadIdx.x == 0) {
        std::uint32_t* arrivals = parameters.arrivals + first_block;
        const std::uint32_t before = ptx::atomic_add_ordered(arrivals, 1);
        shared.is_last = before + 1 == static_cast<std::uint32_t>(blocks);
        // The next launch finds the counter as this one did.
        if (shared.is_last) *arrivals = 0;
      }
      __syncthreads();
      if (shared.is_last) {
        merge_decode_blocks<Config>(p, shared, pair, parts + 2 * first_block, blocks);
      }
      __syncthreads();
    }

    piece.turns -= turns;
    piece.turn = 0;
    if (++piece.kv_head == parameters.turns.kv_heads) {
      piece.kv_head = 0;
      while (piece.turns > 0 &&
             (piece.length = parameters.context_lengths[++piece.sequence]) == 0) {
      }
    }
  }
}

template <typename Config>
AttentionDecodeKernel make_attention_decode_kernel() {
  return {attention_decode_kernel<Config>, sizeof(AttentionDecodeShared<Config>),
          sizeof(AttentionDecodePart<Config>) / sizeof(float), Config::queries};
}

}  // namespace octet
