#include <cuda_runtime.h>

#include "core/cuda/check.h"
#include "ops/attention/decode_sm90_work.h"

namespace octet {

namespace {

constexpr int plan_threads = 256;

// A turn of the line: whose it is, and its pair's place.
struct Turn {
  int sequence;
  int kv_head;
  std::int32_t pair_start;
  std::int32_t pair_turns;
};

__device__ Turn find_turn(const DecodeTurns& turns, const std::int32_t* context_lengths,
                          int sequences, const std::int32_t* starts, std::int32_t turn) {
  // The last sequence that begins at or before the turn.
  int low = 0;
  int high = sequences;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (starts[middle] <= turn) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const std::int32_t of_head = turns.turns(context_lengths[low]);
  const int kv_head = (turn - starts[low]) / of_head;
  return {low, kv_head, starts[low] + kv_head * of_head, of_head};
}

// starts[i]: turns of the sequences before i. Returns the sum of all.
__device__ std::int32_t sum_turns(const DecodeTurns& turns, const std::int32_t* context_lengths,
                                  int sequences, std::int32_t* starts) {
  __shared__ std::int32_t sums[plan_threads];
  __shared__ std::int32_t carried;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    carried = 0;
    starts[0] = 0;
  }
  __syncthreads();
  for (int begin = 0; begin < sequences; begin += plan_threads) {
    const int sequence = begin + thread;
    sums[thread] =
        sequence < sequences ? turns.turns(context_lengths[sequence]) * turns.kv_heads : 0;
    __syncthreads();
    for (int step = 1; step < plan_threads; step *= 2) {
      const std::int32_t before = thread >= step ? sums[thread - step] : 0;
      __syncthreads();
      sums[thread] += before;
      __syncthreads();
    }
    if (sequence < sequences) starts[sequence + 1] = carried + sums[thread];
    __syncthreads();
    if (thread == 0) carried += sums[plan_threads - 1];
    __syncthreads();
  }
  return carried;
}

// The line's turn at which a pair begins, all pairs being numbered as they lie in it.
__device__ std::int32_t pair_start(const DecodeTurns& turns, const std::int32_t* context_lengths,
                                   int sequences, const std::int32_t* starts, int pair) {
  const int sequence = pair / turns.kv_heads;
  if (sequence >= sequences) return starts[sequences];
  const int head = pair - sequence * turns.kv_heads;
  return starts[sequence] + head * turns.turns(context_lengths[sequence]);
}

// The first of the pairs that a block takes when blocks take whole pairs: one each. They are the
// first blocks, which a launch that overlaps the one before starts first, where that one left
// multiprocessors idle.
__device__ int first_pair(int pairs, int block) { return min(block, pairs); }

// Whether blocks take whole pairs (DecodePlan::whole_pairs_up_to), of which there must not be more
// than blocks.
__device__ bool takes_whole_pairs(const DecodeTurns& turns, const std::int32_t* context_lengths,
                                  int sequences, const DecodePlan& plan, std::int32_t total) {
  const int pairs = sequences * turns.kv_heads;
  if (plan.whole_pairs_up_to == 0 || pairs > plan.blocks) return false;
  __shared__ int most;
  if (threadIdx.x == 0) most = 0;
  __syncthreads();
  for (int block = static_cast<int>(threadIdx.x); block < plan.blocks; block += plan_threads) {
    const auto start = [&](int of_block) {
      return pair_start(turns, context_lengths, sequences, plan.starts,
                        first_pair(pairs, of_block));
    };
    atomicMax(&most, (start(block + 1) - start(block) + plan.warpgroups - 1) / plan.warpgroups);
  }
  __syncthreads();
  const int pieces = plan.blocks * plan.warpgroups;
  return most <= min(plan.whole_pairs_up_to, (total + pieces - 1) / pieces + merge_turns - 1);
}

// One block.
__global__ void __launch_bounds__(plan_threads)
    plan_kernel(const DecodeTurns turns, const std::int32_t* context_lengths, int sequences,
                const DecodePlan plan) {
  const std::int32_t total = sum_turns(turns, context_lengths, sequences, plan.starts);
  const int pieces = plan.blocks * plan.warpgroups;
  const DecodeCut cut(total, plan.blocks, plan.warpgroups, plan.late_blocks);
  const bool whole_pairs = takes_whole_pairs(turns, context_lengths, sequences, plan, total);
  const int pairs = sequences * turns.kv_heads;
  const auto start = [&](int piece) {
    if (!whole_pairs) return cut.start(piece);
    const int block = piece / plan.warpgroups;
    const std::int32_t begin =
        pair_start(turns, context_lengths, sequences, plan.starts, first_pair(pairs, block));
    if (piece == pieces) return begin;
    const std::int32_t end =
        pair_start(turns, context_lengths, sequences, plan.starts, first_pair(pairs, block + 1));
    return begin + (end - begin) * (piece - block * plan.warpgroups) / plan.warpgroups;
  };
  const auto find = [&](std::int32_t turn) {
    return find_turn(turns, context_lengths, sequences, plan.starts, turn);
  };
  for (int index = static_cast<int>(threadIdx.x); index < pieces; index += plan_threads) {
    DecodePiece piece = {};
    piece.line_turn = start(index);
    piece.turns = start(index + 1) - piece.line_turn;
    if (piece.turns > 0) {
      const Turn turn = find(piece.line_turn);
      piece.sequence = turn.sequence;
      piece.kv_head = turn.kv_head;
      piece.turn = piece.line_turn - turn.pair_start;
      piece.length = context_lengths[turn.sequence];
    }
    plan.pieces[index] = piece;
  }
  for (int block = static_cast<int>(threadIdx.x); block < plan.blocks; block += plan_threads) {
    const std::int32_t begin = start(block * plan.warpgroups);
    const std::int32_t end = start((block + 1) * plan.warpgroups);
    DecodeSharedPairs shared = {};
    const auto share = [&](int side, const Turn& turn) {
      const int last = cut.owner(turn.pair_start + turn.pair_turns - 1);
      shared.first_block[side] = cut.owner(turn.pair_start) / plan.warpgroups;
      shared.blocks[side] = last / plan.warpgroups - shared.first_block[side] + 1;
    };
    if (end > begin) {
      const Turn first = find(begin);
      const Turn last = find(end - 1);
      if (first.pair_start < begin) share(0, first);
      if (last.pair_start >= begin && last.pair_start + last.pair_turns > end) share(1, last);
    }
    plan.shared_pairs[block] = shared;
  }
}

}  // namespace

void launch_decode_plan(const DecodeTurns& turns, const std::int32_t* context_lengths,
                        int sequences, const DecodePlan& plan, cudaStream_t stream) {
  plan_kernel<<<1, plan_threads, 0, stream>>>(turns, context_lengths, sequences, plan);
  check_cuda(cudaGetLastError(), "launch of the decode plan");
}

}  // namespace octet
