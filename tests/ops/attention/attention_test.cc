#include "ops/attention/attention.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/instruction_set.h"
#include "support/paged_cache.h"

namespace octet {
namespace {

struct Problem {
  CacheShape shape;
  int query_heads = 6;
  std::vector<std::int64_t> lengths;
};

// An instruction set in an arithmetic: bfloat16 is another only where kernels multiply it.
struct Kernels {
  InstructionSet set;
  Arithmetic arithmetic;
};

std::vector<Kernels> all_kernels() {
  std::vector<Kernels> list;
  for (const InstructionSet set : available_instruction_sets()) {
    list.push_back({set, Arithmetic::float32});
    if (set == InstructionSet::avx512_bf16) list.push_back({set, Arithmetic::bfloat16});
  }
  return list;
}

// The cache of `problem` filled, and queries for every token of it.
class Fixture {
 public:
  explicit Fixture(const Problem& problem, int threads = 2)
      : problem_(problem), pool_(threads), cache_(problem.shape, problem.lengths) {
    std::int32_t first_row = 0;
    for (std::size_t i = 0; i < problem.lengths.size(); ++i) {
      const auto length = static_cast<std::int32_t>(problem.lengths[i]);
      all_rows_.push_back(cache_.rows(i, first_row, length, 0));
      first_row += length;
    }
    const auto tokens = static_cast<std::size_t>(first_row);
    const std::size_t kv_width =
        static_cast<std::size_t>(problem.shape.kv_heads * problem.shape.head_dim);
    query_ = random_floats(tokens * query_width(), 11);
    context_.pool = &pool_;
    cache_.write(context_, random_floats(tokens * kv_width, 12),
                 random_floats(tokens * kv_width, 13), all_rows_);
  }

  std::size_t query_width() const {
    return static_cast<std::size_t>(problem_.query_heads * problem_.shape.head_dim);
  }
  const std::vector<SequenceRows>& all_rows() const { return all_rows_; }
  PagedCache& cache() { return cache_; }

  AttentionArgs args(const std::vector<SequenceRows>& rows, float* output) const {
    AttentionArgs made;
    made.query = query_.data();
    made.output = output;
    made.query_stride = static_cast<std::int64_t>(query_width());
    made.output_stride = made.query_stride;
    made.query_heads = problem_.query_heads;
    made.softmax_scale = 1.0f / std::sqrt(static_cast<float>(problem_.shape.head_dim));
    made.layer = cache_.layer();
    made.sequences = rows;
    return made;
  }

  // Runs the given rows (first_row indexes all tokens) and returns an output of all tokens, NaN
  // where no row was asked for.
  std::vector<float> run(const Kernels& kernels, const std::vector<SequenceRows>& rows) {
    std::vector<float> output(query_.size(), std::nanf(""));
    context_.instruction_set = kernels.set;
    context_.arithmetic = kernels.arithmetic;
    attention(context_, args(rows, output.data()));
    return output;
  }

  std::vector<double> reference() {
    std::vector<double> output(query_.size());
    attention_reference(args(all_rows_, nullptr), output.data());
    return output;
  }

 private:
  Problem problem_;
  ThreadPool pool_;
  OpContext context_;
  PagedCache cache_;
  std::vector<SequenceRows> all_rows_;
  std::vector<float> query_;
};

// Norm of the difference over norm of the reference.
double relative_error(const std::vector<float>& got, const std::vector<double>& wanted) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return std::sqrt(difference / norm);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<Problem> problems() {
  std::vector<Problem> list;
  for (const char* dtype :
       {"float32", "float16", "bfloat16", "fp8", "int8", "int8:fp8", "fp8:int8", "float32:fp8"}) {
    list.push_back({{2, 64, 0, dtype, "auto"}, 6, {1, 63, 64, 65, 130}});
  }
  list.push_back({{1, 64, 0, "fp8", "unit"}, 1, {129}});
  list.push_back({{3, 8, 0, "fp8", "auto"}, 3, {70, 2}});
  list.push_back({{1, 80, 0, "int8", "auto"}, 7, {100}});
  list.push_back({{2, 128, 0, "fp8", "auto"}, 8, {600}});
  list.push_back({{1, 256, 100, "bfloat16", "auto"}, 4, {300, 20}});
  list.push_back({{1, 64, 1, "fp8", "auto"}, 2, {80}});
  list.push_back({{1, 64, 64, "int8:fp8", "auto"}, 2, {1100}});
  list.push_back({{1, 512, 0, "fp8", "auto"}, 2, {90}});
  list.push_back(
      {{1, 16, 0, "float32", "auto"}, 120, {70}});  // more query heads than a block's rows
  return list;
}

class AttentionTest : public ::testing::TestWithParam<Kernels> {};

TEST_P(AttentionTest, AgreesWithDoublePrecision) {
  for (const Problem& problem : problems()) {
    Fixture fixture(problem);
    const double error =
        relative_error(fixture.run(GetParam(), fixture.all_rows()), fixture.reference());
    // Sums of up to 1,100 terms in float32, and an exp in error by a unit in the last place. In
    // bfloat16 queries and weights are rounded by up to 2^-9 each.
    EXPECT_LT(error, GetParam().arithmetic == Arithmetic::bfloat16 ? 4e-3 : 2e-6)
        << problem.shape.dtype << " head_dim " << problem.shape.head_dim << " window "
        << problem.shape.window;
  }
}

TEST_P(AttentionTest, SameBitsAloneInABatchInChunksAndOnAnyThreads) {
  for (const Problem& problem : problems()) {
    Fixture whole(problem, 1);
    const std::vector<float> expected = whole.run(GetParam(), whole.all_rows());
    for (const int threads : {1, 2, 3}) {
      Fixture fixture(problem, threads);
      ASSERT_TRUE(same_bits(fixture.run(GetParam(), fixture.all_rows()), expected));
      for (const std::int32_t chunk : {1, 7, 64, 65, 512}) {
        std::vector<SequenceRows> rows;
        for (const SequenceRows& sequence : fixture.all_rows()) {
          for (std::int32_t at = 0; at < sequence.rows; at += chunk) {
            rows.push_back({sequence.first_row + at, std::min(chunk, sequence.rows - at),
                            sequence.first_position + at, 0, sequence.pages});
          }
        }
        // All chunks at once, and one call each.
        ASSERT_TRUE(same_bits(fixture.run(GetParam(), rows), expected)) << chunk;
        if (chunk < 64) continue;
        for (const SequenceRows& part : rows) {
          const std::vector<float> alone = fixture.run(GetParam(), {part});
          const std::size_t first =
              static_cast<std::size_t>(part.first_row) * fixture.query_width();
          const std::size_t count = static_cast<std::size_t>(part.rows) * fixture.query_width();
          ASSERT_EQ(std::memcmp(&alone[first], &expected[first], count * sizeof(float)), 0)
              << chunk;
        }
      }
    }
  }
}

// One query at the end of a long text: its context is split among the threads.
TEST_P(AttentionTest, ASplitContextGivesTheBitsOfAWholeOne) {
  for (const char* dtype : {"bfloat16", "fp8", "int8:fp8"}) {
    const Problem problem{{1, 64, 0, dtype, "auto"}, 3, {5000}};
    std::vector<float> expected;
    for (const int threads : {1, 2, 3, 5}) {
      Fixture fixture(problem, threads);
      const SequenceRows last = {4999, 1, 4999, 0, fixture.all_rows()[0].pages};
      std::vector<float> output = fixture.run(GetParam(), {last});
      output.erase(output.begin(),
                   output.end() - static_cast<std::ptrdiff_t>(fixture.query_width()));
      if (threads == 1) expected = output;
      EXPECT_TRUE(same_bits(output, expected)) << dtype << " on " << threads << " threads";
      EXPECT_FALSE(std::isnan(output[0]));
    }
  }
}

// A NaN of a key or value that a row sees reaches that row, on the path of decode as on prefill's.
TEST_P(AttentionTest, ANanInTheCacheReachesTheRowsThatSeeIt) {
  for (const char* dtype : {"fp8", "bfloat16"}) {
    for (const bool in_key : {true, false}) {
      ThreadPool pool(1);
      OpContext context{&pool, GetParam().set, GetParam().arithmetic};
      PagedCache cache(
          {.kv_heads = 1, .head_dim = 64, .window = 0, .dtype = dtype, .scales = "auto"}, {100});
      std::vector<float> key = random_floats(100 * 64, 1);
      std::vector<float> value = random_floats(100 * 64, 2);
      const std::size_t spoiled = 70 * 64 + 5;
      (in_key ? key : value)[spoiled] = std::nanf("");
      KvWriteCounters counters;
      cache.write(context, key, value, {cache.rows(0, 0, 100, 0)}, &counters);
      const std::vector<float> query = random_floats(100 * 64, 3);
      std::vector<float> output(100 * 64, 0.0f);
      AttentionArgs args;
      args.query = query.data();
      args.output = output.data();
      args.query_stride = 64;
      args.output_stride = 64;
      args.query_heads = 1;
      args.softmax_scale = 0.125f;
      args.layer = cache.layer();
      for (std::int32_t row = 0; row < 100; ++row) {
        const std::vector<SequenceRows> one = {cache.rows(0, row, 1, row)};
        args.sequences = one;
        attention(context, args);
        EXPECT_EQ(std::isnan(output[static_cast<std::size_t>(row) * 64 + 5]), row >= 70)
            << dtype << (in_key ? " key, row " : " value, row ") << row;
      }
    }
  }
}

// A sink: one key takes nearly all the weight. Large scores neither overflow nor vanish.
TEST_P(AttentionTest, LargeScoresStayFinite) {
  ThreadPool pool(1);
  OpContext context{&pool, GetParam().set, GetParam().arithmetic};
  PagedCache cache(
      {.kv_heads = 1, .head_dim = 8, .window = 0, .dtype = "float32", .scales = "auto"}, {100});
  std::vector<float> key(100 * 8, 0.0f);
  std::vector<float> value(100 * 8, 0.0f);
  key[0] = 1000.0f;
  for (int i = 0; i < 8; ++i) value[static_cast<std::size_t>(i)] = 1.0f;
  const std::vector<SequenceRows> rows = {cache.rows(0, 0, 100, 0)};
  cache.write(context, key, value, rows);
  std::vector<float> query(100 * 8, 1000.0f);
  std::vector<float> output(100 * 8, std::nanf(""));
  AttentionArgs args;
  args.query = query.data();
  args.output = output.data();
  args.query_stride = 8;
  args.output_stride = 8;
  args.query_heads = 1;
  args.softmax_scale = 1.0f;
  args.layer = cache.layer();
  args.sequences = rows;
  attention(context, args);
  for (const float x : output) EXPECT_EQ(x, 1.0f);
}

// FlyDSL#1020: rows that lost mass over thousands of keys. A peak, a long tail that carries half of
// the weight, and values of 1: the weights sum to 1.
TEST_P(AttentionTest, WeightsSumToOneOverALongContext) {
  constexpr std::int32_t keys = 5000;
  constexpr int head_dim = 8;
  ThreadPool pool(1);
  OpContext context{&pool, GetParam().set, GetParam().arithmetic};
  PagedCache cache({.kv_heads = 1, .head_dim = head_dim, .dtype = "fp8", .scales = "unit"}, {keys});
  std::vector<float> key(keys * head_dim, 0.0f);
  for (const int peak : {3, 2500, 4990}) key[static_cast<std::size_t>(peak * head_dim)] = 1.0f;
  const std::vector<float> value(keys * head_dim, 1.0f);
  cache.write(context, key, value, {cache.rows(0, 0, keys, 0)});
  std::vector<float> query(head_dim, 0.0f);
  query[0] = 7.4f;  // 3 e^7.4 is 4,908
  std::vector<float> output(head_dim, std::nanf(""));
  const std::vector<SequenceRows> rows = {cache.rows(0, 0, 1, keys - 1)};
  AttentionArgs args;
  args.query = query.data();
  args.output = output.data();
  args.query_stride = head_dim;
  args.output_stride = head_dim;
  args.query_heads = 1;
  args.softmax_scale = 1.0f;
  args.layer = cache.layer();
  args.sequences = rows;
  attention(context, args);
  // 5,000 additions in float32; weights that are rounded to eight bits.
  const float bound = GetParam().arithmetic == Arithmetic::bfloat16 ? 4e-3f : 1e-5f;
  for (const float x : output) EXPECT_NEAR(x, 1.0f, bound);
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, AttentionTest, ::testing::ValuesIn(all_kernels()),
                         [](const auto& tested) {
                           return std::string(name_of(tested.param.set)) +
                                  (tested.param.arithmetic == Arithmetic::bfloat16 ? "_bfloat16"
                                                                                   : "");
                         });

TEST(Attention, HeadsThatDoNotDivideAreRefused) {
  Fixture fixture({{2, 64, 0, "fp8", "auto"}, 6, {5}});
  std::vector<float> output(5 * fixture.query_width());
  AttentionArgs args = fixture.args(fixture.all_rows(), output.data());
  args.query_heads = 5;
  ThreadPool pool(1);
  EXPECT_THROW(attention(OpContext{&pool}, args), Error);
}

}  // namespace
}  // namespace octet
