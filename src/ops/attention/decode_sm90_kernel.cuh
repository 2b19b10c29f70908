// The Hopper decode kernel. Internal to src/ops/attention; the design and
// its figures are in docs/kernels/decode_sm90.md.
//
// A block fills a multiprocessor: a few warpgroups that compute, each with a warp that loads for
// it. A warpgroup takes its own piece of the work (decode_sm90_work.h) and meets the others of its
// block only at the end, to add up parts of the same pair. For a turn of pages:
//   S^T = K q^T       tokens fill the tensor core's 64 rows; beside 8-bit keys a query is two
//                     columns, high and low
//   w = round(exp2(S - turn's maximum)), beside 8-bit values two terms again
//   T^T = V^T w^T     from zero, then O = O * alpha + T * beta in float32
// K and V^T are operands as they lie in the page; nothing is transposed or converted on the way.
#pragma once

#include <cuda_runtime.h>

#include "core/cuda/ptx.cuh"
#include "ops/attention/decode_sm90_load.cuh"
#include "ops/attention/decode_sm90_merge.cuh"
#include "ops/attention/decode_sm90_parameters.h"
#include "ops/attention/decode_sm90_queries.cuh"
#include "ops/attention/decode_sm90_shared.cuh"
#include "ops/attention/decode_sm90_turn.cuh"

namespace octet {

// Ends a pair in this piece: writes the output where the piece has all of it, else leaves a part in
// shared memory. Whoever has a pair's first turn adds its sinks: to the sum, not to the output.
template <typename Config>
__device__ void finish_pair(const DecodeParameters& p, const DecodeWalk& walk,
                            DecodeShared<Config>& shared, DecodeState<Config>& state, int group,
                            bool is_first) {
  const int warp = threadIdx.x / 32 % 4;
  const int lane = threadIdx.x % 32;
  const int row = warp * 16 + lane / 4;
  const int column = lane % 4;
#pragma unroll
  for (int i = 0; i < Config::thread_queries; ++i) {
#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
      state.sum[i] += __shfl_xor_sync(~0u, state.sum[i], step);
    }
    if (lane < 4) shared.warp_sum[group][warp][Config::query_of(column, i)] = state.sum[i];
  }
  const int index = 2 * group + (is_first ? 0 : 1);
  const bool whole = walk.whole();
  if (!whole && threadIdx.x % 128 == 0) {
    shared.part_info[index] = {
        walk.line_turn - walk.turn, walk.pair_turns, walk.sequence, walk.head, walk.turn,
        walk.turn + walk.part_turns};
  }
  float inverse_scale = 1;
  if (p.value_scales != nullptr) {
    inverse_scale = 1.0f / p.value_scales[DecodeHead<Config>(p, walk.head).kv_head];
  }
  ptx::warpgroup_barrier(group);

  DecodePart<Config>& part = shared.part(index);
#pragma unroll
  for (int i = 0; i < Config::thread_queries; ++i) {
    const int q = Config::query_of(column, i);
    const auto& sums = shared.warp_sum[group];
    float sum = (sums[0][q] + sums[1][q]) + (sums[2][q] + sums[3][q]);
    float factor = 1;
    if (p.sinks != nullptr && walk.turn == 0) {
      const float sink = shared.query_sink[group][q];
      const float highest = fmaxf(state.maximum[i], sink);
      factor = ptx::exp2_approximate(state.maximum[i] - highest);
      sum = fmaf(sum, factor, ptx::exp2_approximate(sink - highest + Config::weight_log2));
      state.maximum[i] = highest;
    }
    sum *= inverse_scale;
    if (!whole && row == 0) part.state[q] = make_float2(state.maximum[i], sum);
    std::int64_t place = -1;
    if (whole) {
      factor /= sum;
      place =
          query_place<Config>(p, walk.sequence, walk.head, q, p.output_stride, Config::head_dim);
    }
#pragma unroll
    for (int b = 0; b < Config::value_blocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int dimension = b * 64 + row + 8 * half;
        const float value = state.value(b, i, half) * factor;
        if (Config::head_dim % 64 != 0 && dimension >= Config::head_dim) continue;
        if (!whole) {
          part.output[q][dimension] = value;
        } else if (place >= 0) {
          store_output_at(p, place + dimension, value);
        }
      }
    }
  }
}

// The same value in all lanes, known to the compiler as such: matrix descriptors live in registers
// of the warp.
__device__ __forceinline__ int uniform(unsigned value) {
  return static_cast<int>(__shfl_sync(~0u, value, 0));
}

// A computing warpgroup's piece, from its first page to what it leaves for the block.
template <typename Config>
__device__ void decode_piece(const DecodeParameters& p, DecodeShared<Config>& shared, int group,
                             int piece) {
  if (!p.older_pages_settled) ptx::wait_for_previous_kernels();
  if (threadIdx.x == 0) shared.shared_pairs = p.work.shared_pairs[blockIdx.x];
  DecodeWalk walk(p, piece);
  if (p.older_pages_settled) ptx::wait_for_previous_kernels();
  DecodeState<Config> state;
  int count = 0;
  for (bool is_first = true; !walk.done(); walk.next(p), is_first = false) {
    state.clear();
    prepare_queries<Config>(p, walk, shared, group);
    ptx::fence_async_shared();
    ptx::warpgroup_barrier(group);
    DecodeEdge edge;
    edge.visible_first = p.turns.first_key(walk.length);
    edge.visible_last = walk.length;
    edge.first_key = (p.turns.first_page(walk.length) + walk.turn * Config::turn_pages) * 64;
    // Turns of which every key is seen by every row.
    const int seen_first = p.turns.window == 0 ? 0 : walk.length - p.turns.window;
    const int seen_last = walk.length - p.turns.query_rows + 1;
    const int first_query = DecodeHead<Config>(p, walk.head).first_query;
    for (int turn = 0; turn < walk.part_turns; ++turn, ++count) {
      const bool at_edge =
          edge.first_key < seen_first || edge.first_key + 64 * Config::turn_pages > seen_last;
      decode_turn<Config>(p, shared, state, group, count, first_query, at_edge, edge);
      edge.first_key += 64 * Config::turn_pages;
    }
    finish_pair<Config>(p, walk, shared, state, group, is_first);
  }
}

template <typename Config>
__global__ void __launch_bounds__(Config::threads, 1) decode_kernel(const DecodeParameters p) {
  extern __shared__ std::uint8_t raw[];
  auto& shared = *reinterpret_cast<DecodeShared<Config>*>(
      raw + (1024 - ptx::shared_address(raw) % 1024) % 1024);
  if (threadIdx.x < Config::warpgroups) {
    for (int stage = 0; stage < Config::stages; ++stage) {
      ptx::mbarrier_init(&shared.full[threadIdx.x][stage], 1);
      ptx::mbarrier_init(&shared.empty[threadIdx.x][stage], 4);
    }
    ptx::mbarrier_init_fence();
    shared.part_info[2 * threadIdx.x].pair_start = -1;
    shared.part_info[2 * threadIdx.x + 1].pair_start = -1;
  }
  __syncthreads();
  ptx::launch_next_kernel();
  const int group = uniform(threadIdx.x / 128);
  if (threadIdx.x >= Config::compute_threads) {
    const int loader = uniform((threadIdx.x - Config::compute_threads) / 32);
    decode_load<Config>(p, shared, loader, blockIdx.x * Config::warpgroups + loader);
  } else {
    decode_piece<Config>(p, shared, group, blockIdx.x * Config::warpgroups + group);
  }
  // The loading warps come along, since a barrier of all threads is the plainest; they have no
  // slots.
  __syncthreads();
  merge_block<Config>(p, shared, group);
}

}  // namespace octet
