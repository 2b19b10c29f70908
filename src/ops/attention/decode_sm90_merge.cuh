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

// What a block leaves of a pair that goes on in another: for every four dimensions of a query a
// record of their sums with the query's maximum and sum, in one sector of the L2, so that whoever
// adds up these dimensions has what they count for with them, and is the only one to read it.
struct alignas(32) PartRecord {
  float4 output;
  float2 state;  // maximum, sum
  float2 unused;
};
template <typename Config>
struct SharedPart {
  static constexpr int quads = Config::head_dim / 4;
  PartRecord records[Config::queries * quads];
  // Else parts would lie a power of two apart.
  PartRecord unused[4];
};

// The parts of a pair that began in an earlier block: that block's part is of its last pair, the
// others' of their first.
template <typename Config>
struct SharedPair {
  SharedPart<Config>* parts;
  int first_block;
  int blocks;  // 0: there is no such pair

  __device__ SharedPair(const DecodeParameters& p, const DecodeSharedPairs& pairs)
      : parts(reinterpret_cast<SharedPart<Config>*>(p.parts) + 2 * pairs.first_block[0]),
        first_block(pairs.first_block[0]),
        blocks(pairs.blocks[0]) {}
  __device__ bool ends_in(unsigned block) const {
    return blocks > 0 && static_cast<int>(block) == first_block + blocks - 1;
  }
  __device__ PartRecord* record(int block, int item) const {
    return &parts[block == 0 ? 1 : 2 * block].records[item];
  }
};

// A record of each of `count` blocks; those that do not exist add nothing. All that is missing is
// asked for at once, again and again: one way to the L2 and back behind the last writer.
template <int count>
struct PartRecords {
  float4 output[count];
  float2 state[count];

  // place_of(i): the i-th record, or null where there is none.
  template <typename PlaceOf>
  __device__ __forceinline__ void take(const PlaceOf& place_of) {
    const float missing = missing_word();
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const bool exists = place_of(i) != nullptr;
      output[i] =
          exists ? make_float4(missing, missing, missing, missing) : make_float4(0, 0, 0, 0);
      state[i] = exists ? make_float2(missing, missing) : make_float2(no_score, 0);
    }
    bool complete = false;
    while (!complete) {
      complete = true;
#pragma unroll
      for (int i = 0; i < count; ++i) {
        if (!is_there(output[i])) {
          output[i] = ptx::load_relaxed(&place_of(i)->output);
          complete = false;
        }
        if (!is_there(state[i])) {
          state[i] = ptx::load_relaxed(&place_of(i)->state);
          complete = false;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < count; ++i) {
      PartRecord* place = place_of(i);
      if (place == nullptr) continue;
      ptx::store_relaxed(&place->output, make_float4(missing, missing, missing, missing));
      ptx::store_relaxed(&place->state, make_float2(missing, missing));
    }
  }
};

// Records that a merging block brings, about: 16.5 KB, half a microsecond. With fewer a block, more
// blocks are kept from the next launch's pages, which costs as much
// (docs/kernels/decode_sm90.md).
inline constexpr int records_of_merger = 528;

// Adds up a pair of several blocks, whose last ones share the outputs. A warp takes four records of
// each block, which are one line, eight blocks at once. Whatever the order in which parts come,
// they are added up in one order. Blocks wait for later ones, too: all of a launch are on the
// device at once (decode_sm90.h).
template <typename Config>
__device__ __forceinline__ void merge_blocks(const DecodeParameters& p,
                                             const SharedPair<Config>& pair,
                                             const DecodePartInfo& info) {
  constexpr int quads = Config::head_dim / 4;
  constexpr int tile = 4;  // records of a block
  constexpr int lanes = 32 / tile;
  constexpr int rounds = 5;
  static_assert(quads % tile == 0);
  const int tiles = p.queries * (quads / tile);
  // All but the pair's first block at most: its part of the pair is that of another side.
  const int wanted = (tiles * tile * pair.blocks + records_of_merger / 2) / records_of_merger;
  const int mergers = min(max(wanted, 1), pair.blocks - 1);
  const int merger = static_cast<int>(blockIdx.x) - (pair.first_block + pair.blocks - mergers);
  if (merger < 0) return;
  const int last = tiles * (merger + 1) / mergers;
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int at = tiles * merger / mergers + static_cast<int>(threadIdx.x) / 32; at < last;
       at += Config::threads / 32) {
    const int item = at * tile + lane % tile;
    PartSum total;
#pragma unroll 1
    for (int first = lane / tile; first < pair.blocks; first += rounds * lanes) {
      PartRecords<rounds> records;
      records.take([&](int i) {
        const int block = first + lanes * i;
        return block < pair.blocks ? pair.record(block, item) : nullptr;
      });
      total.add(records.output, records.state);
    }
    __syncwarp();
    const float own = total.maximum;
    float highest = own;
#pragma unroll
    for (int step = tile; step < 32; step *= 2) {
      highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, step));
    }
    const float factor = ptx::exp2_approximate(own - highest);
    float sum = total.sum * factor;
    float4 x = {total.output.x * factor, total.output.y * factor, total.output.z * factor,
                total.output.w * factor};
#pragma unroll
    for (int step = tile; step < 32; step *= 2) {
      sum += __shfl_xor_sync(~0u, sum, step);
      x.x += __shfl_xor_sync(~0u, x.x, step);
      x.y += __shfl_xor_sync(~0u, x.y, step);
      x.z += __shfl_xor_sync(~0u, x.z, step);
      x.w += __shfl_xor_sync(~0u, x.w, step);
    }
    if (lane < tile) {
      const float scale = 1.0f / sum;
      store_output4<Config>(p, info.sequence, info.head, item / quads, item % quads * 4,
                            {x.x * scale, x.y * scale, x.z * scale, x.w * scale});
    }
  }
}

// Pairs in so few blocks are added up in registers.
inline constexpr int few_blocks = 4;

// To what a thread has of the last block's part of a pair in few blocks, adds what it wants of the
// earlier ones', before it in order; no shared memory or barrier after that.
template <typename Config>
__device__ __forceinline__ void add_earlier_blocks(const SharedPair<Config>& pair, int item,
                                                   PartSum* total) {
  PartRecords<few_blocks - 1> earlier;
  earlier.take([&](int i) { return i < pair.blocks - 1 ? pair.record(i, item) : nullptr; });
  float4 output[few_blocks];
  float2 state[few_blocks];
#pragma unroll
  for (int i = 0; i < few_blocks - 1; ++i) {
    output[i] = earlier.output[i];
    state[i] = earlier.state[i];
  }
  output[few_blocks - 1] = total->output;
  state[few_blocks - 1] = make_float2(total->maximum, total->sum);
  *total = {};
  total->add(output, state);
}

// Adds up the parts that the block's pieces left. Pairs that are whole then are done; of a pair
// that goes on in another block, before or after, the block's part goes to global memory, and the
// last blocks of the pair add them up.
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
  const bool few = !divided && pair.blocks <= few_blocks;
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
    const bool with_earlier = few && side == 0 && pair.ends_in(blockIdx.x);
    const bool whole =
        with_earlier || (info.begin == 0 && shared.part_info[last].end == info.pair_turns);
    auto& to = reinterpret_cast<SharedPart<Config>*>(p.parts)[2 * blockIdx.x + side];
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
      if (with_earlier) add_earlier_blocks(pair, item, &total);
      const float4& x = total.output;
      if (whole) {
        const float scale = 1.0f / total.sum;
        store_output4<Config>(p, info.sequence, info.head, q, 4 * quad,
                              {x.x * scale, x.y * scale, x.z * scale, x.w * scale});
      } else {
        PartRecord& record = to.records[item];
        ptx::store_relaxed(&record.output,
                           make_float4(there(x.x), there(x.y), there(x.z), there(x.w)));
        ptx::store_relaxed(&record.state, make_float2(there(total.maximum), there(total.sum)));
      }
    }
  }
  if (pair.blocks > 0 && !few) merge_blocks<Config>(p, pair, shared.part_info[0]);
}

}  // namespace octet
