// How the decode kernel adds up the parts of pairs that several pieces share. Internal to
// src/ops/attention.
#pragma once

#include "core/cuda/ptx.cuh"
#include "ops/attention/decode_sm90_parameters.h"
#include "ops/attention/decode_sm90_shared.cuh"

namespace octet {

// Adds parts up in the order in which they are given, so that a sum has one order whoever makes it.
// Four neighbouring dimensions at once.
struct PartSum {
  float maximum = no_score;
  float sum = 0;
  float4 output = {0, 0, 0, 0};

  template <int batch>
  __device__ __forceinline__ void add(const float4 (&outputs)[batch],
                                      const float2 (&states)[batch]) {
    float highest = maximum;
#pragma unroll
    for (int i = 0; i < batch; ++i) highest = fmaxf(highest, states[i].x);
    const float alpha = ptx::exp2_approximate(maximum - highest);
    maximum = highest;
    sum *= alpha;
    output = {output.x * alpha, output.y * alpha, output.z * alpha, output.w * alpha};
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const float beta = ptx::exp2_approximate(states[i].x - highest);
      sum = fmaf(states[i].y, beta, sum);
      add_scaled(outputs[i], beta, &output);
    }
  }

  static __device__ __forceinline__ void add_scaled(const float4& value, float factor,
                                                    float4* total) {
    total->x = fmaf(value.x, factor, total->x);
    total->y = fmaf(value.y, factor, total->y);
    total->z = fmaf(value.z, factor, total->z);
    total->w = fmaf(value.w, factor, total->w);
  }
};

// Where the parts of all blocks are weighed and added up, once the pages are done with.
template <typename Config>
struct DecodeMerge {
  float factor[2][Config::queries][max_decode_blocks];
  float4 output[2][Config::warpgroups][Config::queries * Config::head_dim / 4];
};

// The parts of one of the block's two shared pairs: the first block's part is of its last pair, the
// others' of their first.
template <typename Config>
struct SharedPair {
  const DecodePart<Config>* parts;
  int blocks;

  __device__ SharedPair(const DecodeParameters& p, const DecodeShared<Config>& shared, int side)
      : parts(reinterpret_cast<const DecodePart<Config>*>(p.parts) +
              2 * shared.shared_pairs.first_block[side]),
        blocks(shared.shared_pairs.blocks[side]) {}
  __device__ const DecodePart<Config>& part(int block) const {
    return parts[block == 0 ? 1 : 2 * block];
  }
};

// A warp weighs a query's parts: what each counts for in the output.
template <typename Config>
__device__ __forceinline__ void weigh_parts(const SharedPair<Config>& pair, int q,
                                            float (&factor)[max_decode_blocks]) {
  const int lane = threadIdx.x % 32;
  constexpr int rounds = max_decode_blocks / 32;
  float2 state[rounds];
  float highest = no_score;
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    const int block = lane + 32 * i;
    state[i] = block < pair.blocks ? __ldcg(&pair.part(block).state[q]) : make_float2(no_score, 0);
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
    if (block < pair.blocks) factor[block] = state[i].x / sum;
  }
}

// Adds up the parts of all blocks, of the pairs to which this block was the last to come: each
// query's maximum and sum by a warp, the outputs by the warpgroups, each every fourth (third, ...)
// part. Where it is the last of both its pairs, half of the warpgroups take each. What is added to
// what does not depend on that, nor on who comes last.
template <typename Config>
__device__ void merge_blocks(const DecodeParameters& p, DecodeShared<Config>& shared) {
  static_assert(sizeof(DecodeMerge<Config>) <= sizeof(shared.pages));
  auto& merge = *reinterpret_cast<DecodeMerge<Config>*>(shared.pages);
  constexpr int warpgroups = Config::warpgroups;
  constexpr int quads = Config::head_dim / 4;
  const int queries = p.queries;
  const int items = queries * quads;
  const bool both = shared.is_last[0] && shared.is_last[1];
  const int group = threadIdx.x / 128;
  // With one warpgroup, the sides come one after the other.
  constexpr int half = (warpgroups + 1) / 2;
  const bool halved = both && warpgroups > 1;
  int side = shared.is_last[0] && !(halved && group >= half) ? 0 : 1;
  const int first_slice = halved && side == 1 ? group - half : group;
  const int slice_step = !halved ? warpgroups : side == 0 ? half : warpgroups - half;

  // The first outputs are asked for before what they count for is known: one round trip less.
  constexpr int batch = 6;
  float4 values[batch];
  const auto load = [&](int item, int begin) {
    const SharedPair<Config> pair(p, shared, side);
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int block = begin + i * warpgroups;
      values[i] = {0, 0, 0, 0};
      if (block < pair.blocks) {
        values[i] = __ldcg(reinterpret_cast<const float4*>(pair.part(block).output[item / quads]) +
                           item % quads);
      }
    }
  };
  bool loaded = threadIdx.x % 128 < items && group < warpgroups;
  if (loaded) load(threadIdx.x % 128, first_slice);

#pragma unroll 1
  for (int task = threadIdx.x / 32; task < 2 * queries; task += Config::threads / 32) {
    const int of_side = task >= queries ? 1 : 0;
    if (!shared.is_last[of_side]) continue;
    const int q = task - of_side * queries;
    weigh_parts<Config>({p, shared, of_side}, q, merge.factor[of_side][q]);
  }
  __syncthreads();

#pragma unroll 1
  for (int pass = 0; pass < (both && !halved ? 2 : 1) && group < warpgroups; ++pass) {
    if (pass == 1) side = 1;
    const int blocks = shared.shared_pairs.blocks[side];
#pragma unroll 1
    for (int item = threadIdx.x % 128; item < items; item += 128) {
#pragma unroll 1
      for (int slice = first_slice; slice < warpgroups; slice += slice_step) {
        float4 sum = {0, 0, 0, 0};
#pragma unroll 1
        for (int begin = slice; begin < blocks; begin += batch * warpgroups) {
          if (!loaded) load(item, begin);
          loaded = false;
#pragma unroll
          for (int i = 0; i < batch; ++i) {
            const int block = begin + i * warpgroups;
            if (block < blocks) {
              PartSum::add_scaled(values[i], merge.factor[side][item / quads][block], &sum);
            }
          }
        }
        loaded = false;
        merge.output[side][slice][item] = sum;
      }
    }
  }
  __syncthreads();

#pragma unroll 1
  for (int of_side = 0; of_side < 2; ++of_side) {
    if (!shared.is_last[of_side]) continue;
    const DecodePartInfo& info = shared.part_info[shared.shared_slot[of_side]];
#pragma unroll 1
    for (int item = threadIdx.x; item < queries * Config::head_dim; item += Config::threads) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < warpgroups; ++i) {
        sum += reinterpret_cast<const float*>(merge.output[of_side][i])[item];
      }
      store_output<Config>(p, info.sequence, info.head, item / Config::head_dim,
                           item % Config::head_dim, sum);
    }
  }
}

// Adds up the parts that the block's pieces left. Pairs that are whole then are done; of a pair
// that goes on in another block, before or after, the block's part goes to global memory, and the
// last block to bring one adds them up.
template <typename Config>
__device__ void merge_block(const DecodeParameters& p, DecodeShared<Config>& shared, int group) {
  constexpr int slots = 2 * Config::warpgroups;
  constexpr int quads = Config::head_dim / 4;
  const int items = p.queries * quads;
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
    for (int item = threadIdx.x % 128; item < items; item += 128) {
      const int q = item / quads;
      const int quad = item % quads;
      float4 output[slots];
      float2 state[slots];
#pragma unroll
      for (int i = 0; i < slots; ++i) {
        output[i] = {0, 0, 0, 0};
        state[i] = {no_score, 0};
        if (pair_start[i] == info.pair_start) {
          output[i] = reinterpret_cast<const float4*>(shared.part(i).output[q])[quad];
          state[i] = shared.part(i).state[q];
        }
      }
      PartSum total;
      total.add(output, state);
      if (whole) {
        const float scale = 1.0f / total.sum;
        const float4 value = {total.output.x * scale, total.output.y * scale,
                              total.output.z * scale, total.output.w * scale};
        store_output4<Config>(p, info.sequence, info.head, q, 4 * quad, value);
      } else {
        __stcg(reinterpret_cast<float4*>(to.output[q]) + quad, total.output);
        if (quad == 0) __stcg(&to.state[q], make_float2(total.maximum, total.sum));
      }
    }
  }
  __syncthreads();
  // A warp for each side, so that the two round trips overlap.
  if (threadIdx.x % 32 == 0 && threadIdx.x < 64) {
    const int side = threadIdx.x / 32;
    bool is_last = false;
    if (shared.shared_slot[side] >= 0) {
      std::uint32_t* arrivals = p.arrivals + shared.shared_pairs.first_block[side];
      const std::uint32_t before = ptx::atomic_add_ordered(arrivals, 1);
      is_last = before + 1 == static_cast<std::uint32_t>(shared.shared_pairs.blocks[side]);
      // The next launch finds the counter as this one did.
      if (is_last) *arrivals = 0;
    }
    shared.is_last[side] = is_last;
  }
  __syncthreads();
  if (shared.is_last[0] || shared.is_last[1]) merge_blocks<Config>(p, shared);
}

}  // namespace octet
