// The CPU's emulation of what the Hopper prefill kernel rounds.
#include "ops/attention/prefill_sm90_emulation.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "ops/attention/attention.h"
#include "support/paged_cache.h"

namespace octet {
namespace {

constexpr int head_dim = 64;
constexpr int tokens = 700;

class PrefillEmulation : public ::testing::Test {
 protected:
  PrefillEmulation()
      : cache_({.head_dim = head_dim, .dtype = "fp8", .scales = "dynamic"}, {tokens}) {
    rows_ = {cache_.rows(0, 0, tokens, 0)};
    OpContext context;
    context.pool = &pool_;
    cache_.write(context, random_floats(std::size_t{2} * tokens * head_dim, 1),
                 random_floats(std::size_t{2} * tokens * head_dim, 2), rows_);
    query_ = random_floats(std::size_t{2} * tokens * head_dim, 3);
    head_ = read_stored_head(cache_.layer().group->run, 0, tokens, [&](int page) {
      return cache_.layer().run(cache_.pages(0)[page], 1);
    });
  }

  std::span<const float> query(int row) const {
    return std::span(query_).subspan(static_cast<std::size_t>(row * 2 + 1) * head_dim, head_dim);
  }
  double distance(const std::vector<double>& a, const double* b) const {
    double difference = 0;
    double norm = 0;
    for (int i = 0; i < head_dim; ++i) {
      difference +=
          (a[static_cast<std::size_t>(i)] - b[i]) * (a[static_cast<std::size_t>(i)] - b[i]);
      norm += b[i] * b[i];
    }
    return std::sqrt(difference / norm);
  }

  ThreadPool pool_{1};
  PagedCache cache_;
  std::vector<SequenceRows> rows_;
  std::vector<float> query_;
  StoredHead head_;
};

TEST_F(PrefillEmulation, WithoutRoundingIsTheReference) {
  AttentionArgs args;
  args.query = query_.data();
  args.query_stride = std::int64_t{2} * head_dim;
  args.query_heads = 2;
  args.softmax_scale = 0.125f;
  args.layer = cache_.layer();
  args.sequences = rows_;
  std::vector<double> reference(query_.size());
  attention_reference(args, reference.data());
  for (const int row : {0, 1, 63, 64, 128, tokens - 1}) {
    std::vector<double> output(head_dim);
    attend_exactly(head_, query(row), 0, row + 1, 0.125, output.data());
    EXPECT_LT(
        distance(output, reference.data() + static_cast<std::ptrdiff_t>(row * 2 + 1) * head_dim),
        1e-12);
  }
}

TEST_F(PrefillEmulation, OneKeyIsItsValueWhateverIsRounded) {
  std::vector<double> exact(head_dim);
  std::vector<double> rounded(head_dim);
  attend_exactly(head_, query(9), 0, 1, 0.125, exact.data());
  attend_as_prefill_rounds(head_, query(9), 8.0, 0, 1, 0.125, rounded.data());
  EXPECT_LT(distance(rounded, exact.data()), 1e-12);
}

// Rounding to three mantissa bits errs by 2^-5 to 2^-4 at most, 2.6 % of a weight in the mean
// square; of the query's it leaves a part of a score of about 1. Random values average neither out.
TEST_F(PrefillEmulation, ErrsByThreeBitsOfTheWeights) {
  for (const int row : {100, 300, tokens - 1}) {
    std::vector<double> exact(head_dim);
    std::vector<double> rounded(head_dim);
    attend_exactly(head_, query(row), 0, row + 1, 0.125, exact.data());
    attend_as_prefill_rounds(head_, query(row), 8.0, 0, row + 1, 0.125, rounded.data());
    EXPECT_LT(distance(rounded, exact.data()), 8e-2);
    EXPECT_GT(distance(rounded, exact.data()), 5e-3);
  }
}

// The scale is a power of two that keeps the query inside e4m3's range: rows a quarter as large as
// the largest lose what falls below 2^-6, an eighth of what rounding costs them anyway.
TEST_F(PrefillEmulation, TheScaleOfTheQueryHardlyMatters) {
  std::vector<double> one(head_dim);
  std::vector<double> other(head_dim);
  attend_as_prefill_rounds(head_, query(500), 9.0, 0, 501, 0.125, one.data());
  attend_as_prefill_rounds(head_, query(500), 36.0, 0, 501, 0.125, other.data());
  EXPECT_LT(distance(other, one.data()), 4e-3);
}

// Whole numbers to 127 lose a third of what three mantissa bits do of the query; what the weights
// lose stays. The query's size does not matter, each row having its scale.
TEST_F(PrefillEmulation, OfInt8KeysErrsLessAndAtAnySizeAlike) {
  PagedCache cache({.head_dim = head_dim, .dtype = "int8:fp8"}, {tokens});
  OpContext context;
  context.pool = &pool_;
  cache.write(context, random_floats(std::size_t{2} * tokens * head_dim, 1),
              random_floats(std::size_t{2} * tokens * head_dim, 2), {cache.rows(0, 0, tokens, 0)});
  const StoredHead head = read_stored_head(cache.layer().group->run, 0, tokens, [&](int page) {
    return cache.layer().run(cache.pages(0)[page], 1);
  });
  EXPECT_EQ(*std::max_element(head.keys.begin(), head.keys.end()), 127);
  for (const int row : {100, 300, tokens - 1}) {
    std::vector<double> exact(head_dim);
    std::vector<double> rounded(head_dim);
    attend_exactly(head, query(row), 0, row + 1, 0.125, exact.data());
    attend_as_prefill_rounds(head, query(row), 8.0, 0, row + 1, 0.125, rounded.data());
    EXPECT_LT(distance(rounded, exact.data()), 5e-2);
    EXPECT_GT(distance(rounded, exact.data()), 5e-3);
    std::vector<float> small(query(row).begin(), query(row).end());
    for (float& x : small) x *= 0x1p-10f;
    std::vector<double> of_small(head_dim);
    attend_as_prefill_rounds(head, small, 8.0, 0, row + 1, 128.0, of_small.data());
    EXPECT_LT(distance(of_small, rounded.data()), 1e-12);
  }
}

// bfloat16 has eight bits of a weight, and the query is not rounded.
TEST_F(PrefillEmulation, OfBfloat16ErrsByEightBitsOfTheWeights) {
  PagedCache cache({.head_dim = head_dim, .dtype = "bfloat16"}, {tokens});
  OpContext context;
  context.pool = &pool_;
  cache.write(context, random_floats(std::size_t{2} * tokens * head_dim, 1),
              random_floats(std::size_t{2} * tokens * head_dim, 2), {cache.rows(0, 0, tokens, 0)});
  const StoredHead head = read_stored_head(cache.layer().group->run, 0, tokens, [&](int page) {
    return cache.layer().run(cache.pages(0)[page], 1);
  });
  for (const int row : {100, tokens - 1}) {
    std::vector<double> exact(head_dim);
    std::vector<double> rounded(head_dim);
    attend_exactly(head, query(row), 0, row + 1, 0.125, exact.data());
    attend_as_prefill_rounds(head, query(row), 0, 0, row + 1, 0.125, rounded.data());
    EXPECT_LT(distance(rounded, exact.data()), 4e-3);
    EXPECT_GT(distance(rounded, exact.data()), 2e-4);
  }
}

}  // namespace
}  // namespace octet
