// How the decode kernel adds up the parts of pairs that several pieces share. Internal to
// src/ops/attention.
#pragma once

#include "core/cuda/ptx.cuh"
#include "ops/attention/decode_sm90_parameters.h"
#include "ops/attention/decode_sm90_shared.cuh"

namespace octet {

// Adds parts up in the order in which they are given, so that a sum has one order whoever makes it.
struct PartSum {
  float maximum = no_score;
  float sum = 0;
  float output = 0;

  template <int batch>
  __device__ __forceinline__ void add(const float (&outputs)[batch],
                                      const float2 (&states)[batch]) {
    float highest = maximum;
#pragma unroll
    for (int i = 0; i < batch; ++i) highest = fmaxf(highest, states[i].x);
    const float alpha = ptx::exp2_approximate(maximum - highest);
    maximum = highest;
    sum *= alpha;
    output *= alpha;
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const float beta = ptx::exp2_approximate(states[i].x - highest);
      sum = fmaf(states[i].y, beta, sum);
      output = fmaf(outputs[i], beta, output);
    }
  }
};

// Where the parts of all blocks are weighed and added up, once the pages are done with.
template <typename Config>
struct DecodeMerge {
  float factor[Config::queries][max_decode_blocks];
  float4 output[Config::warpgroups][Config::queries * Config::head_dim / 4];
};

// Adds up a pair's parts of all blocks: each query's maximum and sum by a warp, the outputs by all
// warpgroups, each every fourth (third, ...) part. The order is the parts', whoever comes last.
template <typename Config>
__device__ void merge_blocks(const DecodeParameters& p, DecodeShared<Config>& shared, int sequence,
                             int kv_head, int first_block, int blocks) {
  static_assert(sizeof(DecodeMerge<Config>) <= sizeof(shared.pages));
  auto& merge = *reinterpret_cast<DecodeMerge<Config>*>(shared.pages);
  const auto* parts = reinterpret_cast<const DecodePart<Config>*>(p.parts) + 2 * first_block;
  // The first block's part is of its last pair, the others' of their first.
  const auto part_of = [&](int block) -> const DecodePart<Config>& {
    return parts[block == 0 ? 1 : 2 * block];
  };
  const int queries = p.turns.query_rows * p.group;
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int q = threadIdx.x / 32; q < queries; q += Config::threads / 32) {
    constexpr int rounds = max_decode_blocks / 32;
    float2 state[rounds];
    float highest = no_score;
#pragma unroll
    for (int i = 0; i < rounds; ++i) {
      const int block = lane + 32 * i;
      state[i] = block < blocks ? __ldcg(&part_of(block).state[q]) : make_float2(no_score, 0);
    }
#pragma unroll
    for (int i = 0; i < rounds; ++i) highest = fmaxf(highest, state[i].x);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, step));
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < rounds; ++i) {
      state[i].x = ptx::exp2_approximate(state[i].x - highest);
      sum = fmaf(state[i].y, state[i].x, sum);
    }
#pragma unroll
    for (int step = 1; step < 32; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
#pragma unroll
    for (int i = 0; i < rounds; ++i) {
      const int block = lane + 32 * i;
      if (block < blocks) merge.factor[q][block] = state[i].x / sum;
    }
  }
  __syncthreads();

  constexpr int quads = Config::head_dim / 4;
  const int group = threadIdx.x / 128;
#pragma unroll 1
  for (int item = threadIdx.x % 128; item < queries * quads && group < Config::warpgroups;
       item += 128) {
    const int q = item / quads;
    float4 sum = {0, 0, 0, 0};
#pragma unroll 6
    for (int block = group; block < blocks; block += Config::warpgroups) {
      const float4 value =
          __ldcg(reinterpret_cast<const float4*>(part_of(block).output[q]) + item % quads);
      const float factor = merge.factor[q][block];
      sum.x = fmaf(value.x, factor, sum.x);
      sum.y = fmaf(value.y, factor, sum.y);
      sum.z = fmaf(value.z, factor, sum.z);
      sum.w = fmaf(value.w, factor, sum.w);
    }
    merge.output[group][item] = sum;
  }
  __syncthreads();

#pragma unroll 1
  for (int item = threadIdx.x; item < queries * Config::head_dim; item += Config::threads) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < Config::warpgroups; ++i) {
      sum += reinterpret_cast<const float*>(merge.output[i])[item];
    }
    store_output<Config>(p, sequence, kv_head, item / Config::head_dim, item % Config::head_dim,
                         sum);
  }
}

// Adds up the parts that the block's pieces left. Pairs that are whole then are done; of a pair
// that goes on in another block, before or after, the block's part goes to global memory, and the
// last block to bring one adds them up.
template <typename Config>
__device__ void merge_block(const DecodeParameters& p, DecodeShared<Config>& shared, int group) {
  constexpr int slots = 2 * Config::warpgroups;
  const int outputs = p.turns.query_rows * p.group * Config::head_dim;
  std::int32_t pair_start[slots];
#pragma unroll
  for (int i = 0; i < slots; ++i) pair_start[i] = shared.part_info[i].pair_start;
    // The warpgroup in whose piece a pair begins adds up its parts; the others have no work with
    // it, which is quicker than that all of them look at all slots.
#pragma unroll 1
  for (int slot = 2 * group; slot < min(2 * group + 2, slots); ++slot) {
    const DecodePartInfo info = shared.part_info[slot];
    if (info.pair_start < 0) continue;
    bool is_first = true;
    int last = slot;
#pragma unroll
    for (int i = 0; i < slots; ++i) {
      if (pair_start[i] != info.pair_start) continue;
      if (i < slot) is_first = false;
      if (i > slot) last = i;
    }
    if (!is_first) continue;
    const bool whole = info.begin == 0 && shared.part_info[last].end == info.pair_turns;
    const int side = info.begin > 0 ? 0 : 1;
    if (!whole && threadIdx.x % 128 == 0) shared.shared_slot[side] = slot;
    auto& to = reinterpret_cast<DecodePart<Config>*>(p.parts)[2 * blockIdx.x + side];
#pragma unroll 1
    for (int item = threadIdx.x % 128; item < outputs; item += 128) {
      const int q = item / Config::head_dim;
      const int dimension = item % Config::head_dim;
      float output[slots];
      float2 state[slots];
#pragma unroll
      for (int i = 0; i < slots; ++i) {
        output[i] = 0;
        state[i] = {no_score, 0};
        if (pair_start[i] == info.pair_start) {
          output[i] = shared.part(i).output[q][dimension];
          state[i] = shared.part(i).state[q];
        }
      }
      PartSum total;
      total.add(output, state);
      if (whole) {
        store_output<Config>(p, info.sequence, info.kv_head, q, dimension,
                             total.output / total.sum);
      } else {
        __stcg(&to.output[q][dimension], total.output);
        if (dimension == 0) __stcg(&to.state[q], make_float2(total.maximum, total.sum));
      }
    }
  }
  __syncthreads();
  // A warp for each side, so that the two round trips overlap.
  if (threadIdx.x % 32 == 0 && threadIdx.x < 64 && shared.shared_slot[threadIdx.x / 32] >= 0) {
    const int side = threadIdx.x / 32;
    std::uint32_t* arrivals = p.arrivals + shared.shared_pairs.first_block[side];
    const std::uint32_t before = ptx::atomic_add_ordered(arrivals, 1);
    shared.is_last[side] =
        before + 1 == static_cast<std::uint32_t>(shared.shared_pairs.blocks[side]);
    // The next launch finds the counter as this one did.
    if (shared.is_last[side]) *arrivals = 0;
  }
  __syncthreads();
#pragma unroll 1
  for (int side = 0; side < 2; ++side) {
    if (shared.shared_slot[side] < 0 || !shared.is_last[side]) continue;
    const DecodePartInfo& info = shared.part_info[shared.shared_slot[side]];
    merge_blocks<Config>(p, shared, info.sequence, info.kv_head,
                         shared.shared_pairs.first_block[side], shared.shared_pairs.blocks[side]);
    __syncthreads();
  }
}

}  // namespace octet
