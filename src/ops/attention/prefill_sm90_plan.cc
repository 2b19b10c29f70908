#include <algorithm>

#include "core/error.h"
#include "ops/attention/prefill_sm90_work.h"

namespace octet {

std::vector<PrefillBlock> make_prefill_blocks(std::span<const PrefillSm90Sequence> sequences,
                                              int group, int window) {
  std::vector<PrefillBlock> blocks;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const PrefillSm90Sequence& sequence = sequences[i];
    if (sequence.rows < 0 || sequence.rows > sequence.context || sequence.first_query_row < 0) {
      throw_error(ErrorKind::internal, "prefill: sequence {} brings {} rows to a context of {}", i,
                  sequence.rows, sequence.context);
    }
    const std::int32_t rows = sequence.rows * group;
    for (std::int32_t first = 0; first < rows; first += prefill_block_rows) {
      const std::int32_t last = std::min(first + prefill_block_rows, rows) - 1;
      PrefillBlock block = {};
      block.sequence = static_cast<std::int32_t>(i);
      block.query_row = sequence.first_query_row;
      block.first_position = sequence.context - sequence.rows;
      block.context = sequence.context;
      block.first_row = first;
      block.rows = rows;
      const std::int32_t position = block.first_position + first / group;
      block.first_key = window > 0 ? std::max(position - window + 1, 0) : 0;
      block.first_tile = block.first_key / prefill_tile_keys;
      block.last_tile = (block.first_position + last / group) / prefill_tile_keys + 1;
      blocks.push_back(block);
    }
  }
  std::stable_sort(blocks.begin(), blocks.end(), [](const PrefillBlock& a, const PrefillBlock& b) {
    return a.last_tile - a.first_tile > b.last_tile - b.first_tile;
  });
  return blocks;
}

}  // namespace octet
