// The emulated tensor core and what it does to long sums, against exact arithmetic.
#include "ops/attention/hopper_accumulator.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "core/float8_e4m3.h"
#include "ops/attention/attention_hopper_emulation.h"
#include "support/paged_cache.h"

namespace octet {
namespace {

// e4m3 numbers in [0.5, 1.5].
std::vector<float> values_about_one(std::size_t count) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(0.5f, 1.5f);
  std::vector<float> values(count);
  for (float& value : values) {
    value = float8_e4m3_to_float(float_to_float8_e4m3(uniform(random)));
  }
  return values;
}

double mean_of(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// One query of zeros: all weights are equal, and the output is the values' mean.
double uniform_error(std::size_t keys, int promote_every, bool tile_local = true,
                     int tile_tokens = 64) {
  const std::vector<float> values = values_about_one(keys);
  const std::vector<float> scores(keys, 0.0f);
  HopperAccumulation accumulation;
  accumulation.promote_every = promote_every;
  accumulation.tile_local_scale = tile_local;
  accumulation.tile_tokens = tile_tokens;
  HopperRow row;
  row.scores = scores;
  row.values = values.data();
  row.head_dim = 1;
  float output = 0;
  hopper_weighted_values(accumulation, row, &output);
  return std::fabs(output / mean_of(values) - 1);
}

TEST(HopperAccumulator, KeepsFourteenBitsTowardZero) {
  const auto sum = [](float start, std::vector<float> products, int bits = 14) {
    return hopper_accumulate(start, products, bits);
  };
  EXPECT_EQ(sum(0, {}), 0.0f);
  EXPECT_EQ(sum(0, {1, 2, 3}), 6.0f);
  EXPECT_EQ(sum(8192, {1}), 8193.0f);  // 14 bits
  EXPECT_EQ(sum(16384, {1}), 16384.0f);
  EXPECT_EQ(sum(16384, {1.99f, 1.99f}), 16384.0f);  // each loses its bits before the sum
  EXPECT_EQ(sum(16384, {2, 2}), 16388.0f);
  EXPECT_EQ(sum(16383, {1}), 16384.0f);
  EXPECT_EQ(sum(16383, {2}), 16384.0f);        // 16385 has 15 bits
  EXPECT_EQ(sum(-16384, {-1.9f}), -16384.0f);  // toward zero, from both sides
  EXPECT_EQ(sum(-16384, {1.9f}), -16384.0f);
  EXPECT_EQ(sum(1, {-1}), 0.0f);
  EXPECT_EQ(sum(1024, {1}, 10), 1024.0f);
  EXPECT_EQ(sum(0, std::vector<float>(32, 448.0f * 448.0f)), 32 * 448.0f * 448.0f);
}

TEST(HopperAccumulator, PromotionTakesTheErrorOfLongContextsAway) {
  const std::size_t keys = 131072;
  for (const bool tile_local : {true, false}) {
    EXPECT_LE(uniform_error(keys, 1, tile_local), 1e-5);
    EXPECT_LE(uniform_error(keys, 4, tile_local), 1e-5);
    EXPECT_GT(uniform_error(keys, 0, tile_local), 2e-2);
  }
  // Without promotion the error grows with the context; with it, it does not.
  EXPECT_GT(uniform_error(131072, 0), 1.5 * uniform_error(32768, 0));
  EXPECT_GT(uniform_error(32768, 0), 1.5 * uniform_error(8192, 0));
  EXPECT_GT(uniform_error(keys, 64), 100 * uniform_error(keys, 1));
}

// FA#122: tile counts of 1, N - 1, N, N + 1 and such that N does not divide.
TEST(HopperAccumulator, AnyNumberOfTilesIsPromotedWhole) {
  for (const int promote_every : {1, 4}) {
    for (const std::size_t tiles : {1, 3, 4, 5, 7, 63, 64, 65}) {
      EXPECT_LE(uniform_error(tiles * 64, promote_every), 1.2e-7) << promote_every << " " << tiles;
      EXPECT_LE(uniform_error(tiles * 64 - 63, promote_every), 1.2e-7) << tiles;
      EXPECT_LE(uniform_error(tiles * 64, promote_every, true, 128), 1.2e-7) << tiles;
    }
  }
}

double sink_error(bool tile_local, std::vector<int> order) {
  constexpr std::size_t keys = 32768;
  constexpr int head_dim = 16;
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> scores(keys);
  for (float& score : scores) score = normal(random);
  scores[0] = 16.0f;
  std::vector<float> values(keys * head_dim);
  for (float& value : values) value = float8_e4m3_to_float(float_to_float8_e4m3(normal(random)));
  HopperAccumulation accumulation;
  accumulation.tile_local_scale = tile_local;
  HopperRow row;
  row.scores = scores;
  row.values = values.data();
  row.head_dim = head_dim;
  row.tile_order = order;
  std::vector<float> output(head_dim);
  hopper_weighted_values(accumulation, row, output.data());

  double sum = 0;
  std::vector<double> exact(head_dim, 0.0);
  for (std::size_t key = 0; key < keys; ++key) {
    const double weight = std::exp(static_cast<double>(scores[key]) - 16);
    sum += weight;
    for (std::size_t d = 0; d < head_dim; ++d) exact[d] += weight * values[key * head_dim + d];
  }
  double difference = 0;
  double norm = 0;
  for (std::size_t d = 0; d < head_dim; ++d) {
    difference += std::pow(output[d] - exact[d] / sum, 2);
    norm += std::pow(exact[d] / sum, 2);
  }
  return std::sqrt(difference / norm);
}

// A sink of +16 at token 0 leaves other tiles' weights below what e4m3 holds, unless each tile has
// its own scale.
TEST(HopperAccumulator, ASinkCostsNothingWithTileLocalScales) {
  std::vector<int> ascending(32768 / 64);
  std::iota(ascending.begin(), ascending.end(), 0);
  std::vector<int> descending(ascending.rbegin(), ascending.rend());
  std::vector<int> shuffled = ascending;
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(5));
  for (const std::vector<int>& order : {ascending, descending, shuffled}) {
    EXPECT_LE(sink_error(true, order), 2e-3);
  }
  EXPECT_GT(sink_error(false, ascending), 3e-3);
}

// vllm#23813: one key that stands out, near the start, in the middle and near the end of a long
// context, is found there.
TEST(HopperAccumulator, APlantedNeedleIsFoundAtAnyDepth) {
  constexpr std::size_t keys = 65536;
  std::mt19937 random(9);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> scores(keys);
  std::vector<float> values(keys);
  for (const double depth : {0.1, 0.5, 0.9}) {
    for (float& score : scores) score = normal(random);
    for (float& value : values) value = -1.0f;
    const auto needle = static_cast<std::size_t>(depth * keys);
    scores[needle] = 20.0f;  // e^20 against 65,536 x e^0.5: all but 2e-4 of the weight
    values[needle] = 7.0f;
    HopperRow row;
    row.scores = scores;
    row.values = values.data();
    row.head_dim = 1;
    float output = 0;
    hopper_weighted_values({}, row, &output);
    EXPECT_NEAR(output, 7.0f, 0.02f) << depth;
  }
}

// aiter#5535: a peak and a long tail that carries two thirds of the weight.
TEST(HopperAccumulator, TheTailOfASoftmaxKeepsItsWeight) {
  std::vector<float> scores(2048, -7.0f);
  std::vector<float> values(2048, 1.0f);
  scores[0] = 0.0f;
  HopperRow row;
  row.scores = scores;
  row.values = values.data();
  row.head_dim = 1;
  float output = 0;
  for (const bool tile_local : {true, false}) {
    HopperAccumulation accumulation;
    accumulation.tile_local_scale = tile_local;
    values[0] = 1.0f;
    hopper_weighted_values(accumulation, row, &output);
    // FlyDSL#1020: weights sum to 1, but for what the peak's own tile truncates.
    EXPECT_NEAR(output, 1.0f, 2e-3f);
    values[0] = 0.0f;
    hopper_weighted_values(accumulation, row, &output);
    EXPECT_NEAR(output, 0.651f, 5e-3f);
  }
}

TEST(HopperEmulation, IsAttentionUpToItsRoundingsInAnyPageOrder) {
  ThreadPool pool(2);
  const OpContext context{&pool};
  constexpr std::int32_t tokens = 200;
  for (const char* scales : {"dynamic", "unit"}) {
    for (const int window : {0, 50}) {
      CacheShape shape{.kv_heads = 2, .head_dim = 64, .window = window, .dtype = "fp8"};
      shape.scales = scales;
      PagedCache cache(shape, {tokens});
      const std::size_t width = 2 * 64;
      const std::vector<SequenceRows> rows = {cache.rows(0, 0, tokens, 0)};
      cache.write(context, random_floats(tokens * width, 1), random_floats(tokens * width, 2),
                  rows);
      const std::vector<float> query = random_floats(tokens * 2 * width, 3);
      std::vector<float> output(query.size());
      AttentionArgs args;
      args.query = query.data();
      args.output = output.data();
      args.query_stride = args.output_stride = 2 * width;
      args.query_heads = 4;
      args.softmax_scale = 0.125f;
      args.layer = cache.layer();
      args.sequences = rows;
      attention_hopper_emulation(args, {});
      std::vector<double> exact(query.size());
      attention_reference(args, exact.data());
      double difference = 0;
      double norm = 0;
      for (std::size_t i = 0; i < exact.size(); ++i) {
        difference += (output[i] - exact[i]) * (output[i] - exact[i]);
        norm += exact[i] * exact[i];
      }
      // Half a step of e4m3 is 6 %; the errors of a query's elements and of weights average out.
      EXPECT_LT(std::sqrt(difference / norm), 0.05) << scales << window;
      EXPECT_GT(std::sqrt(difference / norm), 0.005) << scales << window;  // and they are there
    }
  }
}

// Rows that come alone, as in decode, are the emulated GPU's; rows of a prompt stay the CPU's.
TEST(HopperEmulation, SingleLevelAccumulationIsForRowsThatComeAlone) {
  ThreadPool pool(2);
  OpContext context{&pool};
  constexpr std::int32_t lengths[] = {100, 2000, 700};
  CacheShape shape{.kv_heads = 1, .head_dim = 64, .dtype = "fp8"};
  shape.scales = "dynamic";
  PagedCache cache(shape, {lengths[0], lengths[1], lengths[2]});
  constexpr std::size_t width = 64;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto count = static_cast<std::size_t>(lengths[i]) * width;
    std::vector<float> values = random_floats(count, 10 + static_cast<unsigned>(i));
    for (float& value : values) value += 1;
    cache.write(context, random_floats(count, 20 + static_cast<unsigned>(i)), values,
                {cache.rows(i, 0, lengths[i], 0)});
  }
  const std::vector<SequenceRows> rows = {cache.rows(0, 0, 3, 97), cache.rows(1, 3, 1, 1999),
                                          cache.rows(2, 4, 1, 699)};
  const std::vector<float> query = random_floats(5 * 2 * width, 3);
  const auto attend = [&](auto&& operation) {
    std::vector<float> output(query.size());
    AttentionArgs args;
    args.query = query.data();
    args.output = output.data();
    args.query_stride = args.output_stride = 2 * width;
    args.query_heads = 2;
    args.softmax_scale = 0.125f;
    args.layer = cache.layer();
    args.sequences = rows;
    operation(args);
    return output;
  };
  const std::vector<float> two_level =
      attend([&](const AttentionArgs& args) { attention(context, args); });
  HopperAccumulation never;
  never.promote_every = 0;
  never.tile_local_scale = false;
  const std::vector<float> emulated =
      attend([&](const AttentionArgs& args) { attention_hopper_emulation(args, never); });
  context.accumulation = AttentionAccumulation::single_level;
  const std::vector<float> single =
      attend([&](const AttentionArgs& args) { attention(context, args); });
  const auto alone = static_cast<std::ptrdiff_t>(3 * 2 * width);
  EXPECT_TRUE(std::equal(single.begin(), single.begin() + alone, two_level.begin()));
  EXPECT_TRUE(std::equal(single.begin() + alone, single.end(), emulated.begin() + alone));
  EXPECT_FALSE(std::equal(single.begin() + alone, single.end(), two_level.begin() + alone));
}

}  // namespace
}  // namespace octet
