// What the parts of the decode kernel share: its shape, its shared memory, the walk over a piece.
// Internal to src/ops/attention.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "ops/attention/decode_sm90_parameters.h"

namespace octet {

// A low term holds 16 x what the high term left over, which is at most half a step of 3 bits.
inline constexpr float low_term = 1.0f / 16.0f;
// Below every score, yet finite: the difference of two of them is 0 and not NaN.
inline constexpr float no_score = -1e30f;

// head_dim; column_groups: four queries each (a query row of one head); warpgroups of a block;
// stages of loads in flight for each; pages of a turn; whether each token has its scales.
template <int head_dim_, int column_groups_, int warpgroups_, int stages_, int turn_pages_,
          bool scaled_>
struct DecodeConfig {
  static constexpr int head_dim = head_dim_;
  static constexpr int column_groups = column_groups_;
  static constexpr int warpgroups = warpgroups_;
  static constexpr int stages = stages_;
  static constexpr int turn_pages = turn_pages_;
  static constexpr bool scaled = scaled_;

  static constexpr int queries = 4 * column_groups;
  static constexpr int columns = 2 * queries;
  static constexpr int side_bytes = 64 * head_dim;
  static constexpr int scale_bytes = scaled ? 256 : 0;
  static constexpr int panel_row = head_dim < 128 ? head_dim : 128;
  static constexpr int value_blocks = head_dim / 64;
  static_assert(warpgroups <= 4, "each has a barrier of its own");
  static constexpr int compute_threads = 128 * warpgroups;
  static constexpr int threads = compute_threads + 32 * warpgroups;
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
  std::int32_t kv_head;
  std::int32_t begin;  // turns [begin, end) of the pair
  std::int32_t end;
};

// One entry per warpgroup where it says so.
template <typename Config>
struct DecodeShared {
  static constexpr int warpgroups = Config::warpgroups;
  using Page = std::uint8_t[2 * Config::side_bytes];  // keys, values
  alignas(1024) Page pages[warpgroups][Config::stages][Config::turn_pages];
  alignas(1024) std::uint8_t query[warpgroups][Config::columns * Config::head_dim];
  alignas(512) std::uint8_t weights[warpgroups][Config::turn_pages][Config::columns * 64];
  alignas(16) std::uint16_t scales[warpgroups][Config::stages][Config::turn_pages][128];
  // The part of a piece's first pair. That of its last, another one, lies where the pages were.
  alignas(16) DecodePart<Config> first_part[warpgroups];
  DecodePartInfo part_info[2 * warpgroups];
  float warp_maximum[warpgroups][4][Config::queries];
  float warp_sum[warpgroups][4][Config::queries];
  float query_scale[warpgroups][Config::queries];
  DecodeSharedPairs shared_pairs;
  // Slots of the parts of a pair that is shared with blocks before, and with blocks after; or -1.
  int shared_slot[2];
  bool is_last[2];
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
  std::int32_t kv_head;
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
    kv_head = piece.kv_head;
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
    if (++kv_head == p.turns.kv_heads) {
      kv_head = 0;
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

template <typename Config>
__device__ void store_output(const DecodeParameters& p, int sequence, int kv_head, int q,
                             int dimension, float value) {
  const std::int64_t row = static_cast<std::int64_t>(sequence) * p.turns.query_rows + q / p.group;
  const std::int64_t at =
      row * p.output_stride + (kv_head * p.group + q % p.group) * Config::head_dim + dimension;
  if (p.output_float32) {
    static_cast<float*>(p.output)[at] = value;
  } else {
    static_cast<__nv_bfloat16*>(p.output)[at] = __float2bfloat16(value);
  }
}

// Four neighbouring dimensions.
template <typename Config>
__device__ void store_output4(const DecodeParameters& p, int sequence, int kv_head, int q,
                              int dimension, const float4& value) {
  const std::int64_t row = static_cast<std::int64_t>(sequence) * p.turns.query_rows + q / p.group;
  const std::int64_t at =
      row * p.output_stride + (kv_head * p.group + q % p.group) * Config::head_dim + dimension;
  if (p.output_float32) {
    *reinterpret_cast<float4*>(static_cast<float*>(p.output) + at) = value;
  } else {
    auto* to = reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(p.output) + at);
    to[0] = __floats2bfloat162_rn(value.x, value.y);
    to[1] = __floats2bfloat162_rn(value.z, value.w);
  }
}

}  // namespace octet
