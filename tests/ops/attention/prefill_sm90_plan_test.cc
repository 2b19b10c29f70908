// Which blocks of work a prefill step is divided into.
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "ops/attention/prefill_sm90_work.h"

namespace octet {
namespace {

TEST(PrefillPlan, EveryRowIsInOneBlockAndSeesItsKeys) {
  const std::vector<PrefillSm90Sequence> sequences = {
      {0, 1, 1}, {1, 127, 127}, {128, 300, 5000}, {428, 0, 64}, {428, 4097, 4097}};
  for (const int group : {1, 3, 4, 16}) {
    for (const int window : {0, 1, 128, 1000}) {
      std::set<std::pair<int, int>> seen;
      for (const PrefillBlock& block : make_prefill_blocks(sequences, group, window)) {
        const PrefillSm90Sequence& sequence =
            sequences.at(static_cast<std::size_t>(block.sequence));
        EXPECT_EQ(block.query_row, sequence.first_query_row);
        EXPECT_EQ(block.context, sequence.context);
        EXPECT_EQ(block.rows, sequence.rows * group);
        for (int row = block.first_row;
             row < std::min(block.first_row + prefill_block_rows, block.rows); ++row) {
          EXPECT_TRUE(seen.emplace(block.sequence, row).second);
          const int position = sequence.context - sequence.rows + row / group;
          const int first = window == 0 ? 0 : std::max(position - window + 1, 0);
          EXPECT_LE(block.first_key, first);
          EXPECT_LE(block.first_tile * prefill_tile_keys, first);
          EXPECT_GT(block.last_tile * prefill_tile_keys, position);
        }
        // No tile that no row needs.
        EXPECT_LE((block.last_tile - 1) * prefill_tile_keys, block.context - 1);
      }
      std::size_t rows = 0;
      for (const PrefillSm90Sequence& sequence : sequences) {
        rows += static_cast<std::size_t>(sequence.rows * group);
      }
      EXPECT_EQ(seen.size(), rows);
    }
  }
}

TEST(PrefillPlan, TheLongestBlocksComeFirst) {
  const std::vector<PrefillSm90Sequence> sequences = {{0, 1000, 1000}, {1000, 700, 9000}};
  int before = 1 << 30;
  for (const PrefillBlock& block : make_prefill_blocks(sequences, 4, 0)) {
    EXPECT_LE(block.last_tile - block.first_tile, before);
    before = block.last_tile - block.first_tile;
  }
}

TEST(PrefillPlan, RefusesMoreRowsThanKeys) {
  const std::vector<PrefillSm90Sequence> sequences = {{0, 65, 64}};
  EXPECT_THROW(make_prefill_blocks(sequences, 4, 0), Error);
}

}  // namespace
}  // namespace octet
