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

// A part of another block comes word by word: a word that is not there yet reads as this, a NaN
// that no arithmetic gives. Whoever has read it leaves it so for the next launch. So there is no
// flag, no fence and no counter, each of which would be one more way to the L2 and back.
inline constexpr std::uint32_t not_there = 0xFFFFFFFF;

__device__ __forceinline__ float there(float value) {
  return __float_as_uint(value) == not_there ? __uint_as_float(0x7FFFFFFF) : value;
}
__device__ __forceinline__ bool is_there(float value) {
  return __float_as_uint(value) != not_there;
}
__device__ __forceinline__ bool is_there(const float2& value) {
  return is_there(value.x) && is_there(value.y);
}
__device__ __forceinline__ bool is_there(const float4& value) {
  return is_there(value.x) && is_there(value.y) && is_there(value.z) && is_there(value.w);
}

// Goes on from what was read a moment ago until it is there.
template <typename T>
__device__ __forceinline__ void await(T* place, T* value) {
  while (!is_there(*value)) *value = ptx::load_relaxed(place);
}

// Where the parts of all blocks are weighed and added up, once the pages are done with.
template <typename Config>
struct DecodeMerge {
  float factor[Config::queries][max_decode_blocks];
  float4 output[Config::warpgroups][Config::queries * Config::head_dim / 4];
};

// The parts of a pair that began in an earlier block: that block's part is of its last pair, the
// others' of their first.
template <typename Config>
struct SharedPair {
  DecodePart<Config>* parts;
  int blocks;

  __device__ SharedPair(const DecodeParameters& p, const DecodeSharedPairs& pairs)
      : parts(reinterpret_cast<DecodePart<Config>*>(p.parts) + 2 * pairs.first_block[0]),
        blocks(pairs.blocks[0]) {}
  __device__ DecodePart<Config>& part(int block) const { return parts[block == 0 ? 1 : 2 * block]; }
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
    state[i] = block < pair.blocks ? ptx::load_relaxed(&pair.part(block).state[q])
                                   : make_float2(no_score, 0);
  }
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    const int block = lane + 32 * i;
    if (block >= pair.blocks) continue;
    float2* place = &pair.part(block).state[q];
    await(place, &state[i]);
    ptx::store_relaxed(place, make_float2(__uint_as_float(not_there), __uint_as_float(not_there)));
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

// Adds up the parts of all blocks of the pair that began in an earlier block and ends in this one:
// each query's maximum and sum by a warp, the outputs by the warpgroups, each every fourth (third,
// ...) part. It waits for blocks of lower numbers only, which started before it.
template <typename Config>
__device__ void merge_blocks(const DecodeParameters& p, DecodeShared<Config>& shared) {
  static_assert(sizeof(DecodeMerge<Config>) <= sizeof(shared.pages));
  auto& merge = *reinterpret_cast<DecodeMerge<Config>*>(shared.pages);
  constexpr int warpgroups = Config::warpgroups;
  constexpr int quads = Config::head_dim / 4;
  const int queries = p.queries;
  const int items = queries * quads;
  const SharedPair<Config> pair(p, shared.shared_pairs);
  const int group = threadIdx.x / 128;

  // The first outputs are asked for before what they count for is known: one round trip less.
  constexpr int batch = 6;
  float4 values[batch];
  const auto place_of = [&](int item, int block) {
    return reinterpret_cast<float4*>(pair.part(block).output[item / quads]) + item % quads;
  };
  const auto load = [&](int item, int begin) {
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int block = begin + i * warpgroups;
      if (block < pair.blocks) values[i] = ptx::load_relaxed(place_of(item, block));
    }
  };
  bool loaded = threadIdx.x % 128 < items && group < warpgroups;
  if (loaded) load(threadIdx.x % 128, group);

#pragma unroll 1
  for (int q = threadIdx.x / 32; q < queries; q += Config::threads / 32) {
    weigh_parts<Config>(pair, q, merge.factor[q]);
  }
  __syncthreads();

  if (group < warpgroups) {
    const float missing = __uint_as_float(not_there);
#pragma unroll 1
    for (int item = threadIdx.x % 128; item < items; item += 128) {
      float4 sum = {0, 0, 0, 0};
#pragma unroll 1
      for (int begin = group; begin < pair.blocks; begin += batch * warpgroups) {
        if (!loaded) load(item, begin);
        loaded = false;
#pragma unroll
        for (int i = 0; i < batch; ++i) {
          const int block = begin + i * warpgroups;
          if (block >= pair.blocks) continue;
          float4* place = place_of(item, block);
          await(place, &values[i]);
          ptx::store_relaxed(place, make_float4(missing, missing, missing, missing));
          PartSum::add_scaled(values[i], merge.factor[item / quads][block], &sum);
        }
      }
      loaded = false;
      merge.output[group][item] = sum;
    }
  }
  __syncthreads();

  const DecodePartInfo& info = shared.part_info[0];
#pragma unroll 1
  for (int item = threadIdx.x; item < queries * Config::head_dim; item += Config::threads) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < warpgroups; ++i) {
      sum += reinterpret_cast<const float*>(merge.output[i])[item];
    }
    store_output<Config>(p, info.sequence, info.head, item / Config::head_dim,
                         item % Config::head_dim, sum);
  }
}

// Adds up the parts that the block's pieces left. Pairs that are whole then are done; of a pair
// that goes on in another block, before or after, the block's part goes to global memory, and the
// block in which the pair ends adds them up.
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
        const float4& x = total.output;
        ptx::store_relaxed(reinterpret_cast<float4*>(to.output[q]) + quad,
                           make_float4(there(x.x), there(x.y), there(x.z), there(x.w)));
        if (quad == 0) {
          ptx::store_relaxed(&to.state[q], make_float2(there(total.maximum), there(total.sum)));
        }
      }
    }
  }
  const DecodeSharedPairs& pairs = shared.shared_pairs;
  const int last_block = pairs.first_block[0] + pairs.blocks[0] - 1;
  if (pairs.blocks[0] == 0 || static_cast<int>(blockIdx.x) != last_block) return;
  __syncthreads();  // the pages' place, in which parts lay, is taken for the merge
  merge_blocks<Config>(p, shared);
}

}  // namespace octet
