// Hopper's decode kernel: what its numbers are made of (scales, sinks, soft caps, key means,
// accumulation, the output's type).
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/bfloat16.h"
#include "core/float8_e4m3.h"
#include "ops/attention/decode_sm90.h"
#include "support/decode_sm90.h"

namespace octet {
namespace {

TEST_F(DecodeSm90, UnitScales) {
  for (const int head_dim : {64, 128, 256}) {
    expect_close({.head_dim = head_dim, .scales = "unit", .lengths = {77, 1, 5000}});
  }
}

TEST_F(DecodeSm90, StaticScales) {
  const std::vector<float> keys = {0.02f, 0.011f};
  const std::vector<float> values = {0.015f, 0.03f};
  for (const int head_dim : {64, 128, 256}) {
    expect_close({.head_dim = head_dim,
                  .scales = "unit",
                  .lengths = {77, 1, 5000},
                  .constants = {.key_scales = keys, .value_scales = values}});
    // Each token has its key's scale, and none of its value.
    expect_close({.head_dim = head_dim,
                  .dtype = "int8:fp8",
                  .lengths = {77, 1, 5000},
                  .constants = {.value_scales = values}});
  }
}

// Sinks, soft caps and key means, against a sum written out here; formats whose stored numbers are
// known without reading them.
class DecodeSm90Scores : public DecodeSm90 {
 protected:
  static float stored(const std::string& dtype, float x) {
    return dtype == "fp8" ? float8_e4m3_to_float(float_to_float8_e4m3(x)) : round_to_bfloat16(x);
  }

  void expect_close_scores(const std::string& dtype, std::int32_t length, float soft_cap,
                           bool has_sinks, bool has_means) {
    SCOPED_TRACE(testing::Message() << dtype << ", " << length << " keys, cap " << soft_cap
                                    << ", sinks " << has_sinks << ", means " << has_means);
    constexpr int head_dim = 64;
    constexpr std::size_t width = head_dim;
    constexpr std::size_t heads = 6;
    DecodeProblem problem{.head_dim = head_dim,
                          .query_heads = heads,
                          .dtype = dtype,
                          .scales = dtype == "fp8" ? "unit" : "auto",
                          .lengths = {length}};
    if (has_means) problem.constants.key_mean = random_floats(2 * width, 9, 2.0f);
    make(problem);
    const std::vector<float> sinks = random_floats(heads, 4, 2.0f);
    std::vector<float> means(heads, 0.0f);
    std::vector<double> expected(query_.size(), 0.0);
    for (std::size_t head = 0; head < heads; ++head) {
      const std::size_t at = head * width;
      const float* mean =
          has_means ? problem.constants.key_mean.data() + head / 3 * width : nullptr;
      double of_mean = 0;
      for (std::size_t i = 0; i < width && has_means; ++i)
        of_mean += double{query_[at + i]} * mean[i];
      means[head] = static_cast<float>(of_mean);
      double sum = has_sinks ? std::exp(double{sinks[head]}) : 0.0;
      for (std::int32_t key = 0; key < length; ++key) {
        const std::size_t from = (static_cast<std::size_t>(key) * 2 + head / 3) * width;
        double score = of_mean;
        for (std::size_t i = 0; i < width; ++i) {
          score += double{query_[at + i]} *
                   stored(dtype, has_means ? key_[from + i] - mean[i] : key_[from + i]);
        }
        score *= softmax_scale();
        if (soft_cap > 0) score = soft_cap * std::tanh(score / soft_cap);
        const double weight = std::exp(score);
        sum += weight;
        for (std::size_t i = 0; i < width; ++i) {
          expected[at + i] += weight * stored(dtype, value_[from + i]);
        }
      }
      for (std::size_t i = 0; i < width; ++i) expected[at + i] /= sum;
    }
    const DeviceArray<float> device_sinks(sinks);
    const DeviceArray<float> device_means(means);
    scores_ = {};
    scores_.soft_cap = soft_cap;
    if (has_sinks) scores_.sinks = device_sinks.data();
    if (has_means) scores_.query_means = device_means.data();
    DecodeSm90Workspace workspace(shape(), 1);
    EXPECT_LE(worst_error(run(workspace), expected), bound);
    scores_ = {};
  }
};

TEST_F(DecodeSm90Scores, SinksAndSoftCapsWithAndWithoutMeans) {
  for (const char* dtype : {"fp8", "bfloat16"}) {
    // One turn of one block; several blocks' parts.
    for (const std::int32_t length : {50, 9000}) {
      for (const float soft_cap : {0.0f, 3.0f, 50.0f}) {
        for (const bool has_sinks : {false, true}) {
          for (const bool has_means : {false, true}) {
            expect_close_scores(dtype, length, soft_cap, has_sinks, has_means);
          }
        }
      }
    }
  }
}

TEST_F(DecodeSm90, SingleLevelAccumulationLosesWhatTwoLevelsKeep) {
  DecodeProblem problem{.query_heads = 4, .kv_heads = 4, .lengths = {65536}, .value_mean = 0.5f};
  make(problem);
  const std::vector<double> wanted = reference();
  DecodeSm90Workspace two_level(shape(), 1);
  const double kept = worst_error(run(two_level), wanted);
  problem_.accumulation = AttentionAccumulation::single_level;
  DecodeSm90Workspace single_level(shape(), 1);
  const double lost = worst_error(run(single_level), wanted);
  std::printf("[    error ] two-level %.2e, single-level %.2e\n", kept, lost);
  EXPECT_LE(kept, 4e-4);
  EXPECT_GE(lost, 3 * kept);
  EXPECT_LE(lost, 0.1);
}

TEST_F(DecodeSm90, SingleLevelAccumulationIsRightOverShortContexts) {
  for (const int head_dim : {64, 128, 256}) {
    for (const int group : {1, 8}) {
      expect_close({.head_dim = head_dim,
                    .query_heads = 2 * group,
                    .lengths = {1, 63, 200, 0, 700},
                    .accumulation = AttentionAccumulation::single_level});
    }
  }
}

TEST_F(DecodeSm90, ValuesWithAMeanOverALongContext) {
  // Single-level accumulation would lose half of such a sum (docs/kernels/decode_sm90.md).
  expect_close({.query_heads = 4, .kv_heads = 1, .lengths = {131072}, .value_mean = 0.5f}, 4e-4);
}

TEST_F(DecodeSm90, Bfloat16OutputIsTheRoundedFloat32Output) {
  make({.lengths = {100, 5000}});
  DecodeSm90Workspace workspace(shape(), 2);
  std::vector<float> rounded = run(workspace);
  for (float& x : rounded) x = round_to_bfloat16(x);
  std::vector<float> direct = run(workspace, AttentionOutput::bfloat16);
  EXPECT_EQ(rounded, direct);
}

}  // namespace
}  // namespace octet
