// Who computes what in a decode launch. Internal to src/ops/attention.
//
// The keys of a (sequence, KV head) are taken in turns of a few pages. All turns of a step, in the
// order sequence, KV head, turn, are one line that the blocks cut into equal pieces, so that any
// mix of lengths keeps every block busy to the end. A piece may begin and end inside a pair of
// sequence and KV head; such a pair is in parts, one a block, which one of its blocks merges. Short
// contexts are cut at pairs instead, where that costs few turns (DecodePlan).
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace octet {

// What does not change over a launch and decides how a sequence becomes turns.
struct DecodeTurns {
  int turn_pages = 1;
  int kv_heads = 0;  // several times each where a kernel takes its queries in several shares
  int query_rows = 1;
  int window = 0;

  // The first key that any query row sees.
  __host__ __device__ int first_key(int length) const {
    const int first = length - query_rows + 1 - window;
    return window > 0 && first > 0 ? first : 0;
  }
  __host__ __device__ int first_page(int length) const { return first_key(length) / 64; }
  __host__ __device__ int pages(int length) const {
    return (length + 63) / 64 - first_page(length);
  }
  __host__ __device__ int turns(int length) const {
    return (pages(length) + turn_pages - 1) / turn_pages;
  }
};

// Where a warpgroup's piece begins.
struct alignas(16) DecodePiece {
  std::int32_t sequence;
  std::int32_t kv_head;
  std::int32_t turn;
  std::int32_t turns;      // of the piece, over as many pairs as it takes
  std::int32_t length;     // of the sequence
  std::int32_t line_turn;  // the piece's first turn in the line
  std::int32_t unused[2];
};

// Which blocks share a block's first pair, where it began in an earlier one, and its last pair,
// where it goes on in a later one. Found here, not at the end of a launch, where each division
// would count.
struct alignas(16) DecodeSharedPairs {
  std::int32_t first_block[2];
  std::int32_t blocks[2];  // 0: the pair is not shared
};

// Blocks of a launch, at most: one for each multiprocessor.
inline constexpr int max_decode_blocks = 160;

// What a launch reads of the work map, in device memory.
struct DecodeWork {
  const DecodePiece* pieces;              // one a warpgroup
  const DecodeSharedPairs* shared_pairs;  // one a block
};

// The line's cut into equal pieces. Where launches overlap, blocks start in their order as those of
// the launch ahead end; the last to end are the few that merge, so that a launch's last blocks (one
// to four were seen) are 1.5 us behind all others. Over short contexts they get no turns.
struct DecodeCut {
  std::int64_t total = 0;
  int pieces = 0;  // that have turns: at least one each

  __host__ __device__ DecodeCut(std::int32_t turns, int blocks, int warpgroups, int late_blocks)
      : total(turns) {
    const int all = blocks * warpgroups;
    // Beyond four turns each, equal pieces of all blocks were the faster.
    const int most = total < 4 * all ? all - late_blocks * warpgroups : all;
    pieces = most < turns ? most : turns;
  }
  // The line's turn at which a piece begins; of a piece without turns the line's end.
  __host__ __device__ std::int32_t start(int piece) const {
    return static_cast<std::int32_t>(piece < pieces ? total * piece / pieces : total);
  }
  // The piece that has a turn.
  __host__ __device__ int owner(std::int64_t turn) const {
    return static_cast<int>(((turn + 1) * pieces - 1) / total);
  }
};

// Where the plan writes. starts: scratch of sequences + 1 elements.
struct DecodePlan {
  DecodePiece* pieces;
  DecodeSharedPairs* shared_pairs;
  std::int32_t* starts;
  int blocks;
  int warpgroups;  // of a block
  // Where no warpgroup has more turns than this that way, nor many more than with equal pieces,
  // blocks take whole pairs, and none waits for another's parts. 0: equal pieces always.
  int whole_pairs_up_to = 0;
  int late_blocks = 0;  // the last of the launch (DecodeCut)
};
// What a merge of blocks costs, in turns of a short context: 2.4 us to 0.5.
inline constexpr int merge_turns = 4;
void launch_decode_plan(const DecodeTurns& turns, const std::int32_t* context_lengths,
                        int sequences, const DecodePlan& plan, cudaStream_t stream);

}  // namespace octet
