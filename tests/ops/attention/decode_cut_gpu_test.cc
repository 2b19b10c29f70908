// How a decode launch divides its work among blocks. Compiled with CUDA's headers, run without a
// GPU.

#include <algorithm>
#include <cstdint>
#include <random>

#include <gtest/gtest.h>

#include "ops/attention/decode_sm90_work.h"

namespace octet {
namespace {

// Every piece that the cut counts has turns (a block without a part would never arrive at a merge),
// and each turn is its owner's.
TEST(DecodeCut, CutsTheLineIntoPiecesThatKnowTheirTurns) {
  std::mt19937 random(1);
  for (int round = 0; round < 4000; ++round) {
    const int blocks = round % 3 == 0 ? 132 : 64 + static_cast<int>(random() % 97);
    const int warpgroups = 1 + static_cast<int>(random() % 4);
    const int late_blocks = round % 2 == 0 ? 4 : 0;
    const auto turns = static_cast<std::int32_t>(
        1 +
        random() % (round % 5 == 0 ? 3'000'000 : static_cast<unsigned>(8 * blocks * warpgroups)));
    const DecodeCut cut(turns, blocks, warpgroups, late_blocks);
    ASSERT_LE(cut.pieces, blocks * warpgroups);
    ASSERT_EQ(cut.start(0), 0);
    ASSERT_EQ(cut.start(cut.pieces), turns);
    ASSERT_EQ(cut.start(blocks * warpgroups), turns);
    std::int32_t longest = 0;
    for (int piece = 0; piece < cut.pieces; ++piece) {
      const std::int32_t begin = cut.start(piece);
      const std::int32_t end = cut.start(piece + 1);
      ASSERT_LT(begin, end) << turns << " turns, " << blocks << " blocks, piece " << piece;
      ASSERT_EQ(cut.owner(begin), piece);
      ASSERT_EQ(cut.owner(end - 1), piece);
      longest = std::max(longest, end - begin);
    }
    const int used = late_blocks > 0 && turns < 4 * blocks * warpgroups ? blocks - 4 : blocks;
    ASSERT_LE(longest, turns / (used * warpgroups) + 1);
  }
}

}  // namespace
}  // namespace octet
