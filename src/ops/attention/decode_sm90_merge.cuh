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
__device__ __forceinline__ float missing_word() { return __uint_as_float(not_there); }

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
  int first_block;
  int blocks;  // 0: there is no such pair

  __device__ SharedPair(const DecodeParameters& p, const DecodeSharedPairs& pairs)
      : parts(reinterpret_cast<DecodePart<Config>*>(p.parts) + 2 * pairs.first_block[0]),
        first_block(pairs.first_block[0]),
        blocks(pairs.blocks[0]) {}
  __device__ bool ends_in(unsigned block) const {
    return blocks > 0 && static_cast<int>(block) == first_block + blocks - 1;
  }
  __device__ DecodePart<Config>& part(int block) const { return parts[block == 0 ? 1 : 2 * block]; }
};

// `lanes` lanes weigh a query's parts: what each counts for in the output. The others of their warp
// do the same for other queries, or for none.
template <int lanes, typename Config>
__device__ __forceinline__ void weigh_parts(const SharedPair<Config>& pair, int q, bool exists,
                                            DecodeMerge<Config>& merge) {
  const int lane = threadIdx.x % lanes;
  constexpr int rounds = lanes == 32 ? max_decode_blocks / 32 : 1;
  const float missing = missing_word();
  const int blocks = exists ? pair.blocks : 0;
  float2 state[rounds];
  float highest = no_score;
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    const int block = lane + lanes * i;
    state[i] =
        block < blocks ? ptx::load_relaxed(&pair.part(block).state[q]) : make_float2(no_score, 0);
  }
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    const int block = lane + lanes * i;
    if (block >= blocks) continue;
    float2* place = &pair.part(block).state[q];
    await(place, &state[i]);
    ptx::store_relaxed(place, make_float2(missing, missing));
  }
#pragma unroll
  for (int i = 0; i < rounds; ++i) highest = fmaxf(highest, state[i].x);
#pragma unroll
  for (int step = 1; step < lanes; step *= 2) {
    highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, step));
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    state[i].x = ptx::exp2_approximate(state[i].x - highest);
    sum = fmaf(state[i].y, state[i].x, sum);
  }
#pragma unroll
  for (int step = 1; step < lanes; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    const int block = lane + lanes * i;
    if (block < blocks) merge.factor[q][block] = state[i].x / sum;
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

  // A thread's outputs, part by part and item by item, are asked for a batch at a time, the first
  // before what they count for is known: one round trip less.
  constexpr int batch = Config::column_blocks == 4 ? 12 : 6;
  float4 values[batch];
  struct Place {
    int item;
    int block;
  };
  const auto next = [&](Place& at) {
    at.block += warpgroups;
    if (at.block >= pair.blocks) at = {at.item + 128, group};
  };
  const auto place_of = [&](const Place& at) {
    return reinterpret_cast<float4*>(pair.part(at.block).output[at.item / quads]) + at.item % quads;
  };
  const auto load = [&](Place at) {
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      if (at.item < items) values[i] = ptx::load_relaxed(place_of(at));
      next(at);
    }
  };
  // Of a block's first warpgroups some may have no part.
  Place at = {group < min(warpgroups, pair.blocks) ? static_cast<int>(threadIdx.x) % 128 : items,
              group};
  load(at);

  const bool few = Config::queries > Config::threads / 32 && pair.blocks <= 16;
  if (few) {
#pragma unroll 1
    for (int q = threadIdx.x / 32 * 2; q < queries; q += Config::threads / 16) {
      const int mine = q + threadIdx.x / 16 % 2;
      weigh_parts<16>(pair, mine, mine < queries, merge);
    }
  } else {
#pragma unroll 1
    for (int q = threadIdx.x / 32; q < queries; q += Config::threads / 32) {
      weigh_parts<32>(pair, q, true, merge);
    }
  }
  __syncthreads();

  const float missing = missing_word();
  float4 sum = {0, 0, 0, 0};
#pragma unroll 1
  for (bool loaded = true; at.item < items; loaded = false) {
    if (!loaded) load(at);
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      if (at.item >= items) break;
      float4* place = place_of(at);
      await(place, &values[i]);
      ptx::store_relaxed(place, make_float4(missing, missing, missing, missing));
      PartSum::add_scaled(values[i], merge.factor[at.item / quads][at.block], &sum);
      const int item = at.item;
      next(at);
      if (at.item != item) {
        merge.output[group][item] = sum;
        sum = {0, 0, 0, 0};
      }
    }
  }
  __syncthreads();

  const DecodePartInfo& info = shared.part_info[0];
#pragma unroll 1
  for (int item = threadIdx.x; item < queries * Config::head_dim; item += Config::threads) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < warpgroups; ++i) {
      if (i < pair.blocks) sum += reinterpret_cast<const float*>(merge.output[i])[item];
    }
    store_output<Config>(p, info.sequence, info.head, item / Config::head_dim,
                         item % Config::head_dim, sum);
  }
}

// Pairs in so few blocks are added up in registers.
inline constexpr int few_blocks = 4;

// To what a thread has of the last block's part of a pair in few blocks, adds what it wants of the
// earlier ones', before it in order. All that is missing is asked for at once, again and again: one
// way to the L2 and back behind the last writer, and no shared memory or barrier after that. The
// states, which several threads read, are left to forget_states().
template <typename Config>
__device__ __forceinline__ void add_earlier_blocks(const SharedPair<Config>& pair, int q, int quad,
                                                   PartSum* total) {
  const float missing = missing_word();
  const int earlier = pair.blocks - 1;
  const auto place_of = [&](int block) {
    return reinterpret_cast<float4*>(pair.part(block).output[q]) + quad;
  };
  float4 output[few_blocks];
  float2 state[few_blocks];
#pragma unroll
  for (int i = 0; i < few_blocks - 1; ++i) {
    const bool exists = i < earlier;
    output[i] = exists ? make_float4(missing, missing, missing, missing) : make_float4(0, 0, 0, 0);
    state[i] = exists ? make_float2(missing, missing) : make_float2(no_score, 0);
  }
  bool complete = false;
  while (!complete) {
    complete = true;
#pragma unroll
    for (int i = 0; i < few_blocks - 1; ++i) {
      if (!is_there(output[i])) {
        output[i] = ptx::load_relaxed(place_of(i));
        complete = false;
      }
      if (!is_there(state[i])) {
        state[i] = ptx::load_relaxed(&pair.part(i).state[q]);
        complete = false;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < few_blocks - 1; ++i) {
    if (i >= earlier) continue;
    ptx::store_relaxed(place_of(i), make_float4(missing, missing, missing, missing));
  }
  output[few_blocks - 1] = total->output;
  state[few_blocks - 1] = make_float2(total->maximum, total->sum);
  *total = {};
  total->add(output, state);
}

// One warpgroup, all of whose threads have read the states.
template <typename Config>
__device__ __forceinline__ void forget_states(const SharedPair<Config>& pair, int queries) {
  const float missing = missing_word();
  for (int i = threadIdx.x % 128; i < queries * few_blocks; i += 128) {
    const int block = i % few_blocks;
    if (block >= pair.blocks - 1) continue;
    ptx::store_relaxed(&pair.part(block).state[i / few_blocks], make_float2(missing, missing));
  }
}

// Adds up the parts that the block's pieces left. Pairs that are whole then are done; of a pair
// that goes on in another block, before or after, the block's part goes to global memory, and the
// block in which the pair ends adds them up.
template <typename Config>
__device__ void merge_block(const DecodeParameters& p, DecodeShared<Config>& shared, int group) {
  constexpr int slots = 2 * Config::warpgroups;
  constexpr int quads = Config::head_dim / 4;
  // Few queries' parts are added up by the warpgroup in whose piece their pair begins; the others
  // have no work with it, which is quicker than that all of them look at all slots. Many queries
  // are divided among all threads.
  constexpr bool divided = Config::column_blocks > 1;
  constexpr int step = divided ? Config::threads : 128;
  const int first_slot = divided ? 0 : 2 * group;
  const int last_slot = divided ? slots : min(2 * group + 2, slots);
  const int items = p.queries * quads;
  const SharedPair<Config> pair(p, shared.shared_pairs);
  const bool merges = pair.ends_in(blockIdx.x);
  const bool merges_few = !divided && merges && pair.blocks <= few_blocks;
  std::int32_t pair_start[slots];
#pragma unroll
  for (int i = 0; i < slots; ++i) pair_start[i] = shared.part_info[i].pair_start;
#pragma unroll 1
  for (int slot = first_slot; slot < last_slot; ++slot) {
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
    const int side = info.begin > 0 ? 0 : 1;
    const bool with_earlier = merges_few && side == 0;
    const bool whole =
        with_earlier || (info.begin == 0 && shared.part_info[last].end == info.pair_turns);
    auto& to = reinterpret_cast<DecodePart<Config>*>(p.parts)[2 * blockIdx.x + side];
#pragma unroll 1
    for (int item = divided ? threadIdx.x : threadIdx.x % 128; item < items; item += step) {
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
      if (with_earlier) add_earlier_blocks(pair, q, quad, &total);
      const float4& x = total.output;
      if (whole) {
        const float scale = 1.0f / total.sum;
        store_output4<Config>(p, info.sequence, info.head, q, 4 * quad,
                              {x.x * scale, x.y * scale, x.z * scale, x.w * scale});
      } else {
        ptx::store_relaxed(reinterpret_cast<float4*>(to.output[q]) + quad,
                           make_float4(there(x.x), there(x.y), there(x.z), there(x.w)));
        if (quad == 0) {
          ptx::store_relaxed(&to.state[q], make_float2(there(total.maximum), there(total.sum)));
        }
      }
    }
    if (with_earlier) {
      ptx::warpgroup_barrier(group);
      forget_states(pair, p.queries);
    }
  }
  if (!merges || merges_few) return;
  __syncthreads();  // the pages' place, in which parts lay, is taken for the merge
  merge_blocks<Config>(p, shared);
}

}  // namespace octet
