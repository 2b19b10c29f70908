// What the parts of the decode kernel share: its shape, its shared memory, the walk over a piece.
// Internal to src/ops/attention.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "ops/attention/decode_sm90_parameters.h"

namespace octet {

// Below every score, yet finite: the difference of two of them is 0 and not NaN.
inline constexpr float no_score = -1e30f;

// What keys are; values are e4m3, beside bfloat16 keys bfloat16.
enum class DecodeKeys { e4m3, int8, bfloat16 };

// column_blocks: of eight columns of the tensor core each; warpgroups of a block; stages of loads
// in flight for each; pages of a turn; single_level: the tensor core adds all turns up by itself.
template <DecodeKeys keys_, int head_dim_, int column_blocks_, int warpgroups_, int stages_,
          int turn_pages_, bool single_level_ = false>
struct DecodeConfig {
  static constexpr DecodeKeys keys = keys_;
  static constexpr int head_dim = head_dim_;
  static constexpr int column_blocks = column_blocks_;
  static constexpr int warpgroups = warpgroups_;
  static constexpr int stages = stages_;
  static constexpr int turn_pages = turn_pages_;
  static constexpr bool single_level = single_level_;

  // Columns of a query or its weights: an 8-bit number is two, the rounded value and what is left
  // over. Each thread has two columns of each block: one query's both terms, or two queries.
  static constexpr int element_bytes = keys == DecodeKeys::bfloat16 ? 2 : 1;
  static constexpr int terms = keys == DecodeKeys::bfloat16 ? 1 : 2;
  static constexpr int columns = 8 * column_blocks;
  static constexpr int queries = columns / terms;
  static constexpr int thread_queries = 2 * column_blocks / terms;
  // What a unit of the second term counts for.
  static constexpr float query_low_term = keys == DecodeKeys::int8 ? 1.0f / 254 : 1.0f / 16;
  static constexpr float weight_low_term = 1.0f / 16;
  // The largest weight's logarithm: e4m3 has its three bits down to 2^-6 only.
  static constexpr float weight_log2 = terms == 2 ? 8.0f : 0.0f;

  static constexpr int row_bytes = head_dim * element_bytes;
  static constexpr int side_bytes = 64 * row_bytes;
  static constexpr int side_scale_bytes = 128;
  static constexpr int panel_row = row_bytes % 128 == 0 ? 128 : row_bytes % 64 == 0 ? 64 : 32;
  static constexpr int weight_row = 64 * element_bytes;
  // Of 64 dimensions each; the last may reach past the head, into rows that nothing is made of.
  static constexpr int value_blocks = (head_dim + 63) / 64;
  static_assert(warpgroups <= 4, "each has a barrier of its own");
  static constexpr int compute_threads = 128 * warpgroups;
  static constexpr int threads = compute_threads + 32 * warpgroups;

  // The query of a thread's i-th score in a row, column being the thread's lane % 4.
  static __device__ __forceinline__ constexpr int query_of(int column, int i) {
    return terms == 2 ? column + 4 * i : i / 2 * 8 + 2 * column + i % 2;
  }
  // Its place among the accumulators, of the row or (half) the one eight below; the second term's
  // is the next.
  static __device__ __forceinline__ constexpr int place_of(int i, int half) {
    return terms == 2 ? 4 * i + 2 * half : i / 2 * 4 + 2 * half + i % 2;
  }
};

// What a piece holds of a pair of which it has not all turns: outputs still to be divided, and of
// each query the maximum and the sum. In shared memory, and between blocks in global memory.
template <typename Config>
struct DecodePart {
  float output[Config::queries][Config::head_dim];
  float2 state[Config::queries];  // maximum, sum
};

struct DecodePartInfo {
  std::int32_t pair_start;  // the pair's first turn in the line; -1: no part
  std::int32_t pair_turns;
  std::int32_t sequence;
  std::int32_t head;   // of the work map
  std::int32_t begin;  // turns [begin, end) of the pair
  std::int32_t end;
};

// One entry per warpgroup where it says so.
template <typename Config>
struct DecodeShared {
  static constexpr int warpgroups = Config::warpgroups;
  using Page = std::uint8_t[2 * Config::side_bytes];  // keys, values
  alignas(1024) Page pages[warpgroups][Config::stages][Config::turn_pages];
  alignas(1024) std::uint8_t query[warpgroups][Config::columns * Config::row_bytes];
  alignas(1024)
      std::uint8_t weights[warpgroups][Config::turn_pages][Config::columns * Config::weight_row];
  // Of the keys, then of the values.
  alignas(16) std::uint16_t scales[warpgroups][Config::stages][Config::turn_pages][128];
  // The part of a piece's first pair. That of its last, another one, lies where the pages were.
  alignas(16) DecodePart<Config> first_part[warpgroups];
  DecodePartInfo part_info[2 * warpgroups];
  float warp_maximum[warpgroups][4][Config::queries];
  float warp_sum[warpgroups][4][Config::queries];
  float query_scale[warpgroups][Config::queries];
  float query_mean[warpgroups][Config::queries];  // what key means took from its scores
  float query_sink[warpgroups][Config::queries];  // no_score: none
  DecodeSharedPairs shared_pairs;
  std::uint64_t full[warpgroups][Config::stages];
  std::uint64_t empty[warpgroups][Config::stages];

  __device__ DecodePart<Config>& part(int index) {
    static_assert(sizeof(DecodePart<Config>) <= sizeof(pages[0]));
    return index % 2 == 0 ? first_part[index / 2]
                          : *reinterpret_cast<DecodePart<Config>*>(pages[index / 2]);
  }
};

// A warpgroup's piece, pair by pair. Every thread walks for itself, in step.
struct DecodeWalk {
  std::int32_t sequence;
  std::int32_t head;       // of the work map
  std::int32_t turn;       // of the pair, at which this part begins
  std::int32_t remaining;  // turns of the piece from there on
  std::int32_t length;     // of the sequence
  std::int32_t pair_turns;
  std::int32_t part_turns;  // of the pair in this piece
  std::int32_t line_turn;   // of `turn`

  __device__ DecodeWalk(const DecodeParameters& p, int piece_index) {
    const DecodePiece piece = p.work.pieces[piece_index];
    line_turn = piece.line_turn;
    sequence = piece.sequence;
    head = piece.kv_head;
    turn = piece.turn;
    remaining = piece.turns;
    length = piece.length;
    part_turns = 0;
    if (remaining > 0) enter(p);
  }
  __device__ bool done() const { return remaining == 0; }
  __device__ bool whole() const { return part_turns == pair_turns; }
  __device__ void next(const DecodeParameters& p) {
    remaining -= part_turns;
    line_turn += part_turns;
    if (remaining == 0) return;
    turn = 0;
    if (++head == p.turns.kv_heads) {
      head = 0;
      // A sequence of no keys has no turns.
      do {
        length = p.context_lengths[++sequence];
      } while (length == 0);
    }
    enter(p);
  }

 private:
  __device__ void enter(const DecodeParameters& p) {
    pair_turns = p.turns.turns(length);
    part_turns = min(remaining, pair_turns - turn);
  }
};

// The KV head behind a head of the work map, and the first of its queries there.
template <typename Config>
struct DecodeHead {
  int kv_head;
  int first_query;
  __device__ DecodeHead(const DecodeParameters& p, int head) : kv_head(head), first_query(0) {
    if (p.chunks > 1) {
      kv_head = head / p.chunks;
      first_query = (head - kv_head * p.chunks) * Config::queries;
    }
  }
};

// Where a query's row of the output (or of anything with rows of `stride` elements and `width` a
// head) begins; -1: the last share of a KV head's queries has no such query.
template <typename Config>
__device__ std::int64_t query_place(const DecodeParameters& p, int sequence, int head, int q,
                                    std::int64_t stride, int width) {
  const DecodeHead<Config> of(p, head);
  q += of.first_query;
  if (q >= p.total_queries) return -1;
  const std::int64_t row = static_cast<std::int64_t>(sequence) * p.turns.query_rows + q / p.group;
  return row * stride + static_cast<std::int64_t>(of.kv_head * p.group + q % p.group) * width;
}

__device__ __forceinline__ void store_output_at(const DecodeParameters& p, std::int64_t at,
                                                float value) {
  if (p.output_float32) {
    static_cast<float*>(p.output)[at] = value;
  } else {
    static_cast<__nv_bfloat16*>(p.output)[at] = __float2bfloat16(value);
  }
}

template <typename Config>
__device__ void store_output(const DecodeParameters& p, int sequence, int head, int q,
                             int dimension, float value) {
  const std::int64_t at =
      query_place<Config>(p, sequence, head, q, p.output_stride, Config::head_dim);
  if (at >= 0) store_output_at(p, at + dimension, value);
}

// Four neighbouring dimensions.
template <typename Config>
__device__ void store_output4(const DecodeParameters& p, int sequence, int head, int q,
                              int dimension, const float4& value) {
  const std::int64_t at =
      query_place<Config>(p, sequence, head, q, p.output_stride, Config::head_dim);
  if (at < 0) return;
  if (p.output_float32) {
    *reinterpret_cast<float4*>(static_cast<float*>(p.output) + at + dimension) = value;
  } else {
    auto* to =
        reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(p.output) + at + dimension);
    to[0] = __floats2bfloat162_rn(value.x, value.y);
    to[1] = __floats2bfloat162_rn(value.z, value.w);
  }
}

}  // namespace octet
