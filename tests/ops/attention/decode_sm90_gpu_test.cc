// Hopper's decode kernel: what it takes (lengths, heads, rows, windows), however work is divided.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "ops/attention/decode_sm90.h"
#include "support/decode_sm90.h"

namespace octet {
namespace {

TEST_F(DecodeSm90, MixedLengthsInOneBatch) {
  expect_close({.lengths = {1, 63, 64, 65, 127, 4096, 131072}});
  for (const Format& format : formats) {
    for (const int head_dim : format.head_dims) {
      expect_close({.head_dim = head_dim,
                    .dtype = format.dtype,
                    .scales = format.scales(),
                    .lengths = {1, 63, 64, 65, 0, 127, 1500, 0, 3000, 0}});
    }
  }
}

TEST_F(DecodeSm90, AgreesWithTheReferenceThatRotatesKeysBack) {
  for (const std::string dtype : {"fp8", "int8:fp8"}) {
    for (const int head_dim : {64, 96}) {
      make({.head_dim = head_dim, .dtype = dtype, .lengths = {1, 70, 200}});
      DecodeSm90Workspace workspace(shape(), 3);
      EXPECT_LE(worst_error(run(workspace), slow_reference()), bound) << dtype << " " << head_dim;
    }
  }
}

TEST_F(DecodeSm90, EveryGroupSize) {
  for (const Format& format : formats) {
    for (const int head_dim : format.head_dims) {
      // Above 16 queries (8 at head_dim 512) they are taken in shares.
      for (const int group : {1, 3, 4, 7, 8, 16, 21}) {
        expect_close({.head_dim = head_dim,
                      .query_heads = 3 * group,
                      .kv_heads = 3,
                      .dtype = format.dtype,
                      .scales = format.scales(),
                      .lengths = {1, 200, 64, 500}});
      }
    }
  }
}

// Parts of two, a few and many blocks are added up in three ways, by few queries or many.
TEST_F(DecodeSm90, EveryGroupSizeOverSeveralBlocks) {
  for (const Format& format : formats) {
    for (const int group : {1, 3, 4, 8, 16, 21}) {
      for (const std::int64_t length : {400, 1100, 2100, 9000}) {
        expect_close({.query_heads = 4 * group,
                      .kv_heads = 4,
                      .dtype = format.dtype,
                      .scales = format.scales(),
                      .lengths = {length}});
      }
    }
  }
}

TEST_F(DecodeSm90, SeveralQueryRows) {
  for (const int rows : {2, 3, 4}) {
    expect_close({.query_heads = 4,
                  .kv_heads = 2,
                  .query_rows = rows,
                  .lengths = {rows, 64, 65, 66, 67, 130, 3000}});
  }
  expect_close({.query_heads = 2, .kv_heads = 2, .query_rows = 8, .lengths = {8, 69, 1000}});
  for (const Format& format : formats) {
    expect_close({.query_heads = 8,
                  .kv_heads = 2,
                  .query_rows = 8,
                  .window = 100,
                  .dtype = format.dtype,
                  .scales = format.scales(),
                  .lengths = {8, 69, 0, 1000}});
  }
}

TEST_F(DecodeSm90, Windows) {
  for (const Format& format : formats) {
    for (const int head_dim : format.head_dims) {
      for (const int window : {1, 64, 128, 1000}) {
        expect_close({.head_dim = head_dim,
                      .window = window,
                      .dtype = format.dtype,
                      .scales = format.scales(),
                      .lengths = {1, 64, 130, 1500}});
      }
    }
  }
  expect_close({.query_heads = 4, .query_rows = 4, .window = 66, .lengths = {4, 65, 67, 500}});
}

TEST_F(DecodeSm90, ManySequences) {
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < 700; ++i) lengths.push_back(1 + i * 37 % 300);
  expect_close({.query_heads = 4, .kv_heads = 1, .lengths = lengths});
}

// Between whole pairs in a block and long contexts: a turn or two for each warpgroup.
TEST_F(DecodeSm90, ShortContextsInSeveralBlocks) {
  for (const Format& format : formats) {
    for (const std::vector<std::int64_t>& lengths :
         {std::vector<std::int64_t>{1024}, {897}, {2048}, {1500, 1, 0, 64, 800}}) {
      expect_close({.query_heads = 32,
                    .kv_heads = 8,
                    .dtype = format.dtype,
                    .scales = format.scales(),
                    .lengths = lengths});
    }
  }
}

// What a launch leaves in the workspace does not reach the next one, which divides the work in
// another way.
TEST_F(DecodeSm90, LengthsChangeFromLaunchToLaunch) {
  overlap_ = true;
  const std::vector<std::vector<std::int64_t>> steps = {{1024, 900},  {20000, 3},   {40, 700},
                                                        {1500, 1500}, {5000, 9000}, {1024, 900}};
  make({.query_heads = 32, .kv_heads = 8, .lengths = steps[0]});
  DecodeSm90Workspace workspace(shape(), 2);
  for (const std::vector<std::int64_t>& lengths : steps) {
    make({.query_heads = 32, .kv_heads = 8, .lengths = lengths});
    DecodeSm90Workspace fresh(shape(), 2);
    EXPECT_EQ(run(workspace), run(fresh)) << lengths[0];
    EXPECT_EQ(run(workspace), run(fresh)) << lengths[0];
  }
}

TEST_F(DecodeSm90, PlacesOfPagesAndRepetitionChangeNoBit) {
  make({.lengths = {1, 3000, 64, 20000}});
  DecodeSm90Workspace workspace(shape(), 4);
  const std::vector<float> first = run(workspace);
  EXPECT_EQ(first, run(workspace));
  upload(5);
  EXPECT_EQ(first, run(workspace));
}

TEST_F(DecodeSm90, OverlapChangesNoBit) {
  for (const Format& format : formats) {
    overlap_ = false;
    make({.query_rows = 2,
          .dtype = format.dtype,
          .scales = format.scales(),
          .lengths = {2, 64, 65, 66, 3000, 20000}});
    DecodeSm90Workspace workspace(shape(), 6);
    const std::vector<float> alone = run(workspace);
    overlap_ = true;
    // Who comes last, and of how many pairs, changes from run to run.
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(alone == run(workspace)) << format.dtype;
  }
}

TEST_F(DecodeSm90, RefusesShapesWithoutAKernel) {
  make({.lengths = {10}});
  const auto expect_refused = [](const DecodeSm90Shape& shape) {
    EXPECT_FALSE(DecodeSm90Workspace::supports(shape));
    EXPECT_THROW(DecodeSm90Workspace(shape, 1), Error);
  };
  EXPECT_TRUE(DecodeSm90Workspace::supports(shape()));
  DecodeSm90Shape other = shape();
  other.head_dim = 80;
  expect_refused(other);
  other = shape();
  other.policy.value = {KvDtype::int8, KvScales::dynamic};
  expect_refused(other);
  other = shape();
  other.policy = {{KvDtype::float16, KvScales::none}, {KvDtype::float16, KvScales::none}};
  expect_refused(other);
  other = shape();
  other.policy = {{KvDtype::bfloat16, KvScales::none}, {KvDtype::bfloat16, KvScales::none}};
  EXPECT_TRUE(DecodeSm90Workspace::supports(other));
  other.accumulation = AttentionAccumulation::single_level;
  expect_refused(other);
  other.accumulation = AttentionAccumulation::two_level;
  other.head_dim = 512;
  expect_refused(other);
}

// Small enough for compute-sanitizer, yet with split pairs, edges and merges.
TEST_F(DecodeSm90, Sanitized) {
  for (const Format& format : formats) {
    for (const int head_dim : format.head_dims) {
      expect_close({.head_dim = head_dim,
                    .dtype = format.dtype,
                    .scales = format.scales(),
                    .lengths = {1, 65, 3000}});
    }
  }
  expect_close({.query_rows = 2, .window = 100, .lengths = {2, 300}});
  // Parts of a few blocks, and of many with 16 queries.
  expect_close({.query_heads = 32, .kv_heads = 8, .lengths = {1024}});
  expect_close({.query_heads = 32, .kv_heads = 2, .lengths = {4096}});
}

}  // namespace
}  // namespace octet
