// Hopper's prefill kernels of int8 keys beside e4m3 values.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/bfloat16.h"
#include "core/error.h"
#include "kv/element_order.h"
#include "ops/attention/prefill_sm90.h"
#include "support/prefill_sm90.h"

namespace octet {
namespace {

class PrefillSm90Int8 : public PrefillSm90 {
 protected:
  void expect(PrefillProblem problem, double bound = 4e-2) {
    problem.dtype = "int8:fp8";
    expect_close(problem, bound);
  }
};

TEST_F(PrefillSm90Int8, MixedLengthsInOneBatch) {
  for (const int head_dim : {64, 128, 256}) {
    std::vector<int> lengths = {1, 127, 128, 129, 4097};
    if (head_dim == 128) lengths.push_back(65537);
    expect({.head_dim = head_dim, .query_heads = 4, .kv_heads = 1, .prompts = whole(lengths)});
  }
}

TEST_F(PrefillSm90Int8, GroupSizes) {
  for (const int head_dim : {64, 128, 256}) {
    for (const int group : {1, 3, 5, 8, 16}) {
      expect({.head_dim = head_dim,
              .query_heads = 3 * group,
              .kv_heads = 3,
              .prompts = whole({1, 200, 64, 1000})});
    }
  }
}

TEST_F(PrefillSm90Int8, ManyPromptsAndRepetitionChangesNoBit) {
  for (const int head_dim : {64, 128, 256}) {
    // Items of one tile, and of more tiles than there are stages.
    std::vector<PrefillPrompt> prompts;
    for (int i = 0; i < 80; ++i) prompts.push_back({1 + i * 37 % 60, 1 + i * 37 % 60});
    for (int i = 0; i < 20; ++i) prompts.push_back({40, 600 + i * 37 % 900});
    expect({.head_dim = head_dim, .query_heads = 15, .kv_heads = 3, .prompts = prompts});
    PrefillSm90Workspace made = workspace();
    EXPECT_TRUE(repeats(made, 20)) << "head_dim " << head_dim;
  }
}

TEST_F(PrefillSm90Int8, ChunksAndWindows) {
  for (const int head_dim : {64, 128, 256}) {
    expect({.head_dim = head_dim,
            .prompts = {{1, 1000}, {64, 65}, {100, 5000}, {0, 70}, {513, 4096}}});
    for (const int window : {1, 128, 1000}) {
      expect({.head_dim = head_dim,
              .window = window,
              .prompts = {{1, 1}, {130, 130}, {1001, 1001}, {700, 5000}}});
    }
  }
}

TEST_F(PrefillSm90Int8, ValuesWithAMeanOverALongContext) {
  for (const int head_dim : {64, 128, 256}) {
    expect({.head_dim = head_dim,
            .query_heads = 4,
            .kv_heads = 1,
            .prompts = {{256, 131072}},
            .value_mean = 0.5f},
           2e-3);
  }
}

TEST_F(PrefillSm90Int8, ScoresThatSpanManyPowersOfTwo) {
  for (const int head_dim : {64, 128, 256}) {
    expect({.head_dim = head_dim, .prompts = whole({3000}), .key_deviation = 8});
  }
}

// Each row has its own scale: one that is small beside its neighbours loses nothing.
TEST_F(PrefillSm90Int8, QueriesOfDifferentSizes) {
  for (const int head_dim : {64, 128, 256}) {
    make({.head_dim = head_dim, .dtype = "int8:fp8", .prompts = whole({300})});
    const std::vector<float> query = query_;
    for (const float factor : {16.0f, 0x1p-6f}) {
      for (std::size_t i = 0; i < query_.size(); ++i) {
        const std::size_t head = i / static_cast<std::size_t>(head_dim) % 8;
        query_[i] = query[i] * (head == 3 ? factor : head == 5 ? 0.0f : 1.0f);
      }
      upload_query();
      PrefillSm90Workspace made = workspace();
      const PrefillErrors got = errors(run(made));
      EXPECT_LE(got.error, 1.1 * got.emulated + 7e-4) << head_dim << ", " << factor;
    }
  }
}

TEST_F(PrefillSm90Int8, Bfloat16OutputIsTheRoundedFloat32Output) {
  make({.dtype = "int8:fp8", .prompts = {{100, 100}, {300, 5000}}});
  PrefillSm90Workspace made = workspace();
  std::vector<float> rounded = run(made);
  for (float& x : rounded) x = round_to_bfloat16(x);
  EXPECT_EQ(rounded, run(made, AttentionOutput::bfloat16));
}

TEST_F(PrefillSm90Int8, RefusesOtherValuesBesideInt8Keys) {
  make({.dtype = "int8:fp8", .prompts = whole({10})});
  EXPECT_TRUE(PrefillSm90Workspace::supports(shape()));
  for (const KvSidePolicy value :
       {KvSidePolicy{KvDtype::int8, KvScales::dynamic}, KvSidePolicy{KvDtype::fp8, KvScales::unit},
        KvSidePolicy{KvDtype::bfloat16, KvScales::none}}) {
    PrefillSm90Shape other = shape();
    other.policy.value = value;
    EXPECT_FALSE(PrefillSm90Workspace::supports(other));
    EXPECT_THROW(PrefillSm90Workspace(other, 1, 1), Error);
  }
}

// Small enough for compute-sanitizer, yet with edges, several items a block and masked tiles.
TEST_F(PrefillSm90Int8, Sanitized) {
  for (const int head_dim : {64, 128, 256}) {
    expect({.head_dim = head_dim, .prompts = {{1, 1}, {65, 129}, {200, 700}}});
  }
}

// Queries and keys of chosen integers, of which each row sees two, whose values are 0 and 1: the
// output tells the difference of two scores.
class PrefillSm90Integers : public PrefillSm90 {
 protected:
  float softmax_scale() const override { return scale_log2_ * 0.69314718056f; }

  // codes[token][dimension]; the query's must reach 127, which makes its scale 1. A score times
  // scale_log2 must be a number that float16 has.
  void make_integers(int head_dim, float scale_log2, const std::vector<std::vector<int>>& query,
                     const std::vector<std::vector<int>>& keys) {
    scale_log2_ = scale_log2;
    const int tokens = static_cast<int>(keys.size());
    make({.head_dim = head_dim,
          .query_heads = 1,
          .kv_heads = 1,
          .window = 2,
          .dtype = "int8:fp8",
          .prompts = whole({tokens})});
    const KvLayerView layer = cache_->layer();
    const KvRunLayout& layout = layer.group->run;
    const std::uint16_t one = float_to_bfloat16(1.0f);
    for (int token = 0; token < tokens; ++token) {
      std::byte* run = layer.run(cache_->pages(0)[token / page_tokens], 0);
      const int row = token % page_tokens;
      const auto at = static_cast<std::size_t>(token);
      for (int i = 0; i < head_dim; ++i) {
        const auto dimension = static_cast<std::size_t>(i);
        run[layout.key_offset + element_offset(layout.key_order, 1, head_dim, row, i)] =
            static_cast<std::byte>(keys[at][dimension]);
        run[layout.value_offset + element_offset(layout.value_order, 1, head_dim, row, i)] =
            token % 2 == 0 ? std::byte{0} : std::byte{0x38};
        query_[at * static_cast<std::size_t>(head_dim) + dimension] =
            static_cast<float>(query[at][dimension]);
      }
      std::memcpy(run + layout.key_scale_offset + 2 * row, &one, sizeof(one));
      std::memcpy(run + layout.value_scale_offset + 2 * row, &one, sizeof(one));
    }
    upload(0);
    upload_query();
  }

  static std::int64_t score(const std::vector<int>& query, const std::vector<int>& key) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < query.size(); ++i) sum += std::int64_t{query[i]} * key[i];
    return sum;
  }

  void expect_exact(const std::vector<std::vector<int>>& query,
                    const std::vector<std::vector<int>>& keys) {
    PrefillSm90Workspace made = workspace();
    const std::vector<float> output = run(made);
    const auto width = static_cast<std::size_t>(problem_.head_dim);
    ASSERT_EQ(output.size(), keys.size() * width);
    for (std::size_t row = 1; row < keys.size(); ++row) {
      const auto difference =
          static_cast<double>(score(query[row], keys[row]) - score(query[row], keys[row - 1])) *
          scale_log2_;
      // The key whose value is 1 is the one with an odd place.
      const double wanted = 1 / (1 + std::exp2(row % 2 == 1 ? -difference : difference));
      for (std::size_t i = 0; i < width; ++i) {
        ASSERT_NEAR(output[row * width + i], wanted, 1e-5)
            << "row " << row << ", head_dim " << width << ", difference " << difference;
      }
    }
  }

  float scale_log2_ = 1;
};

// Scores of at most 4 from halves that add up to some hundred thousand and cancel: sums of 14 bits,
// which the tensor core keeps of e4m3 products, would be off by tens.
TEST_F(PrefillSm90Integers, ScoresAreExact) {
  std::mt19937 random(5);
  for (const int head_dim : {64, 128, 256}) {
    const auto half = static_cast<std::size_t>(head_dim / 2);
    std::vector<std::vector<int>> query;
    std::vector<std::vector<int>> keys;
    for (int token = 0; token < 700; ++token) {
      std::vector<int> q(2 * half);
      std::vector<int> k(2 * half);
      for (std::size_t i = 0; i < half; ++i) {
        // Four dimensions tell the keys apart.
        q[i] = i < 4 ? static_cast<int>(random() % 2) : 64 + static_cast<int>(random() % 64);
        k[i] = 64 + static_cast<int>(random() % 63);
        q[half + i] = q[i];
        k[half + i] = -k[i] + (i < 4 ? static_cast<int>(random() % 3) - 1 : 0);
      }
      q[half - 1] = q[2 * half - 1] = 127;
      query.push_back(q);
      keys.push_back(k);
    }
    make_integers(head_dim, 1, query, keys);
    expect_exact(query, keys);
  }
}

// The largest sums there are, of either sign.
TEST_F(PrefillSm90Integers, TheLargestSumsAreWithinRange) {
  for (const int head_dim : {64, 128, 256}) {
    const auto width = static_cast<std::size_t>(head_dim);
    std::vector<std::vector<int>> query;
    std::vector<std::vector<int>> keys;
    for (int token = 0; token < 300; ++token) {
      query.push_back(std::vector<int>(width, token / 2 % 2 == 0 ? 127 : -127));
      keys.push_back(std::vector<int>(width, 127));
    }
    make_integers(head_dim, 0x1p-12f, query, keys);
    expect_exact(query, keys);
  }
}

}  // namespace
}  // namespace octet
