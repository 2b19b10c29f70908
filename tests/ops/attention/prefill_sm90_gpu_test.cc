// Hopper's prefill kernels of e4m3 and bfloat16 caches.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/bfloat16.h"
#include "core/error.h"
#include "ops/attention/prefill_sm90.h"
#include "support/prefill_sm90.h"

namespace octet {
namespace {

TEST_F(PrefillSm90, MixedLengthsInOneBatch) {
  for (const int head_dim : {64, 128, 256}) {
    expect_close({.head_dim = head_dim,
                  .query_heads = 4,
                  .kv_heads = 1,
                  .prompts = whole({1, 127, 128, 129, 4097, 65537})});
  }
}

TEST_F(PrefillSm90, EveryGroupSize) {
  for (const int head_dim : {64, 128, 256}) {
    for (int group = 1; group <= 16; ++group) {
      expect_close({.head_dim = head_dim,
                    .query_heads = 3 * group,
                    .kv_heads = 3,
                    .prompts = whole({1, 200, 64, 1000})});
    }
  }
}

// Items of a single tile, so many that every block takes several: of the two warps that prepare
// tiles one has none of an item's, and must not be ahead of the item's query.
TEST_F(PrefillSm90, ManyShortPrompts) {
  for (const int head_dim : {64, 128, 256}) {
    std::vector<std::int32_t> lengths;
    for (int i = 0; i < 240; ++i) lengths.push_back(1 + i * 37 % 120);
    expect_close(
        {.head_dim = head_dim, .query_heads = 15, .kv_heads = 3, .prompts = whole(lengths)});
    PrefillSm90Workspace made = workspace();
    EXPECT_TRUE(repeats(made, 20)) << "head_dim " << head_dim;
  }
}

// Items of more tiles than there are stages. With one scale for all, tiles take no time to prepare,
// so that the two warps that do so come as near to overtaking one another as they can.
TEST_F(PrefillSm90, ManyPromptsOfSeveralTiles) {
  for (const int head_dim : {64, 128, 256}) {
    for (const std::string scales : {"unit", "dynamic"}) {
      std::vector<std::int32_t> lengths;
      for (int i = 0; i < 24; ++i) lengths.push_back(600 + i * 337 % 900);
      expect_close({.head_dim = head_dim, .scales = scales, .prompts = whole(lengths)});
      PrefillSm90Workspace made = workspace();
      EXPECT_TRUE(repeats(made, 50)) << "head_dim " << head_dim << ", " << scales;
    }
  }
}

TEST_F(PrefillSm90, UnitScales) {
  for (const int head_dim : {64, 128, 256}) {
    expect_close({.head_dim = head_dim, .scales = "unit", .prompts = whole({77, 1, 3000})});
  }
}

TEST_F(PrefillSm90, ScalesOfEachHead) {
  for (const int head_dim : {64, 128, 256}) {
    expect_close({.head_dim = head_dim,
                  .key_scales = {0.0625f, 0.02f},
                  .value_scales = {0.01f, 0.5f},
                  .prompts = whole({77, 1, 3000})});
  }
}

// What a kernel of 8 bits and one of 16 are asked alike.
TEST_F(PrefillSm90, Bfloat16) {
  for (const int head_dim : {64, 128, 256}) {
    const auto expect = [&](PrefillProblem problem) {
      problem.head_dim = head_dim;
      problem.dtype = "bfloat16";
      expect_close(problem, 2e-3);
    };
    expect({.query_heads = 4, .kv_heads = 1, .prompts = whole({1, 127, 128, 129, 4097})});
    for (const int group : {1, 3, 8, 16}) {
      expect({.query_heads = 3 * group, .kv_heads = 3, .prompts = whole({1, 200, 64, 1000})});
    }
    expect({.prompts = {{1, 1000}, {64, 65}, {100, 5000}, {0, 70}, {513, 4096}}});
    for (const int window : {1, 63, 128, 129, 1000}) {
      expect({.window = window, .prompts = {{1, 1}, {130, 130}, {1001, 1001}, {700, 5000}}});
    }
    expect({.query_heads = 4, .kv_heads = 1, .prompts = {{256, 131072}}, .value_mean = 0.5f});
    expect({.prompts = whole({3000}), .key_deviation = 8});
  }
}

TEST_F(PrefillSm90, QueriesOfDifferentSizes) {
  // Rows of a block share the query's scale, and float16 holds their scores.
  for (const int head_dim : {64, 128, 256}) {
    make({.head_dim = head_dim, .prompts = whole({300})});
    for (std::size_t i = 0; i < query_.size(); ++i) {
      const std::size_t head = i / static_cast<std::size_t>(head_dim) % 8;
      query_[i] *= head == 3 ? 16.0f : head == 5 ? 0.0f : 1.0f;
    }
    upload_query();
    PrefillSm90Workspace made = workspace();
    const PrefillErrors got = errors(run(made));
    EXPECT_LE(got.error, 1.1 * got.emulated + 7e-4) << head_dim;
  }
}

TEST_F(PrefillSm90, ChunksAtTheEndOfALongerContext) {
  for (const int head_dim : {64, 128, 256}) {
    expect_close({.head_dim = head_dim,
                  .prompts = {{1, 1000}, {64, 65}, {100, 5000}, {0, 70}, {513, 4096}}});
  }
}

TEST_F(PrefillSm90, Windows) {
  for (const int head_dim : {64, 128, 256}) {
    for (const int window : {1, 63, 128, 129, 1000}) {
      expect_close({.head_dim = head_dim,
                    .window = window,
                    .prompts = {{1, 1}, {130, 130}, {1001, 1001}, {700, 5000}}});
    }
  }
}

TEST_F(PrefillSm90, ValuesWithAMeanOverALongContext) {
  // Single-level accumulation would lose half of such a sum (docs/kernels/decode_sm90.md).
  for (const int head_dim : {64, 128, 256}) {
    expect_close({.head_dim = head_dim,
                  .query_heads = 4,
                  .kv_heads = 1,
                  .prompts = {{256, 131072}},
                  .value_mean = 0.5f},
                 2e-3);
  }
}

TEST_F(PrefillSm90, ScoresThatSpanManyPowersOfTwo) {
  for (const int head_dim : {64, 128, 256}) {
    expect_close({.head_dim = head_dim, .prompts = whole({3000}), .key_deviation = 8}, 2e-1);
  }
}

TEST_F(PrefillSm90, PlacesOfPagesAndRepetitionChangeNoBit) {
  make({.prompts = {{1, 1}, {3000, 3000}, {100, 20000}}});
  PrefillSm90Workspace made = workspace();
  const std::vector<float> first = run(made);
  EXPECT_EQ(first, run(made));
  upload(5);
  EXPECT_EQ(first, run(made));
}

TEST_F(PrefillSm90, ChunkingStaysWithinTheRounding) {
  const PrefillProblem problem = {.prompts = whole({1500})};
  make(problem);
  PrefillSm90Workspace at_once = workspace();
  const std::vector<float> whole_prompt = run(at_once);
  // The same cache and query, the prompt's last rows alone.
  const std::size_t last = 333 * row_elements();
  query_.erase(query_.begin(), query_.end() - static_cast<std::ptrdiff_t>(last));
  query_rows_ = 333;
  upload_query();
  sequences_ = {{0, 333, 1500}};
  PrefillSm90Workspace in_part = workspace();
  const std::vector<float> part = run(in_part);
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < last; ++i) {
    const double wanted = whole_prompt[whole_prompt.size() - last + i];
    difference += (part[i] - wanted) * (part[i] - wanted);
    norm += wanted * wanted;
  }
  EXPECT_LE(std::sqrt(difference / norm), 2e-2);
}

TEST_F(PrefillSm90, Bfloat16OutputIsTheRoundedFloat32Output) {
  make({.prompts = {{100, 100}, {300, 5000}}});
  PrefillSm90Workspace made = workspace();
  std::vector<float> rounded = run(made);
  for (float& x : rounded) x = round_to_bfloat16(x);
  EXPECT_EQ(rounded, run(made, AttentionOutput::bfloat16));
}

TEST_F(PrefillSm90, RefusesShapesWithoutAKernel) {
  make({.prompts = whole({10})});
  PrefillSm90Shape other = shape();
  other.head_dim = 80;
  EXPECT_THROW(PrefillSm90Workspace(other, 1, 1), Error);
  other = shape();
  other.policy.value = {KvDtype::int8, KvScales::dynamic};
  EXPECT_THROW(PrefillSm90Workspace(other, 1, 1), Error);
  EXPECT_FALSE(PrefillSm90Workspace::supports(other));
  other = shape();
  other.policy.value = {KvDtype::fp8, KvScales::unit};
  EXPECT_THROW(PrefillSm90Workspace(other, 1, 1), Error);
  EXPECT_TRUE(PrefillSm90Workspace::supports(shape()));
  PrefillSm90Workspace small(shape(), 10, 1);
  const std::vector<PrefillSm90Sequence> more = {{0, 10, 10}, {10, 10, 10}};
  EXPECT_THROW(small.plan(more, nullptr), Error);
}

// Small enough for compute-sanitizer, yet with edges, several items a block and masked tiles.
TEST_F(PrefillSm90, Sanitized) {
  for (const int head_dim : {64, 128, 256}) {
    expect_close({.head_dim = head_dim, .prompts = {{1, 1}, {65, 65}, {200, 700}}});
    expect_close(
        {.head_dim = head_dim, .dtype = "bfloat16", .prompts = {{1, 1}, {65, 65}, {200, 700}}});
  }
  expect_close({.window = 100, .prompts = {{2, 2}, {300, 400}}});
}

}  // namespace
}  // namespace octet
