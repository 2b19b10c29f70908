// Who computes what in a prefill launch. Internal to src/ops/attention.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/attention/prefill_sm90_sequence.h"

namespace octet {

// Keys of a tile: two pages. A tile's products are added up by the tensor core (in 14 bits) and
// then once to a float32 sum.
inline constexpr int prefill_tile_keys = 128;
// Rows of a block of work: two warpgroups of 64. A row is a query row of one head; the heads of a
// KV head are neighbours.
inline constexpr int prefill_block_rows = 128;

// e4m3 queries are scaled so that the largest norm of a block's rows comes to [2^(e - 1), 2^e).
constexpr int prefill_query_exponent(int head_dim) { return head_dim <= 64 ? 4 : 3; }

// Some rows of a sequence, for every KV head.
struct alignas(16) PrefillBlock {
  std::int32_t sequence;        // its line in the page table
  std::int32_t query_row;       // the sequence's first, among all query rows
  std::int32_t first_position;  // of that row
  std::int32_t context;         // keys of the sequence
  std::int32_t first_row;       // of the block: query row of the sequence x heads of a KV head
  std::int32_t rows;            // of the whole sequence
  std::int32_t first_key;       // the first that any of the block's rows sees
  std::int32_t first_tile;      // [first_tile, last_tile) hold the keys that the block's rows see
  std::int32_t last_tile;
  std::int32_t kv_head;  // filled in when work is handed out; -1: there is no more
  std::int32_t unused[2];
};

// The blocks of a step, those with the most tiles first, so that the last to be handed out are
// short. group: query heads of a KV head; window: 0 for none.
std::vector<PrefillBlock> make_prefill_blocks(std::span<const PrefillSm90Sequence> sequences,
                                              int group, int window);

}  // namespace octet
