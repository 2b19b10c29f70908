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

// Sinks, soft caps and key means. Where stored numbers are known without reading them, against a
// sum written out here, to which the fixture's own is held too; int8 keys against the fixture's.
class DecodeSm90Scores : public DecodeSm90 {
 protected:
  static constexpr int head_dim = 64;
  static constexpr int heads = 6;  // of two KV heads

  static float stored(const std::string& dtype, float x) {
    return dtype == "fp8" ? float8_e4m3_to_float(float_to_float8_e4m3(x)) : round_to_bfloat16(x);
  }

  const float* mean_of(int head) const {
    return problem_.constants.key_mean.data() + head / 3 * head_dim;
  }

  std::vector<double> sum_written_out() const {
    constexpr std::size_t width = head_dim;
    const bool has_means = !means_.empty();
    std::vector<double> expected(query_.size(), 0.0);
    for (int head = 0; head < heads; ++head) {
      const auto of_head = static_cast<std::size_t>(head);
      const std::size_t at = of_head * width;
      double sum = sinks_.empty() ? 0.0 : std::exp(double{sinks_[of_head]});
      for (std::size_t key = 0; key < static_cast<std::size_t>(problem_.lengths[0]); ++key) {
        const std::size_t from = (key * 2 + of_head / 3) * width;
        double score = has_means ? means_[of_head] : 0.0;
        for (std::size_t i = 0; i < width; ++i) {
          const float centred = has_means ? key_[from + i] - mean_of(head)[i] : key_[from + i];
          score += double{query_[at + i]} * stored(problem_.dtype, centred);
        }
        score *= softmax_scale();
        if (scores_.soft_cap > 0) score = scores_.soft_cap * std::tanh(score / scores_.soft_cap);
        const double weight = std::exp(score);
        sum += weight;
        for (std::size_t i = 0; i < width; ++i) {
          expected[at + i] += weight * stored(problem_.dtype, value_[from + i]);
        }
      }
      for (std::size_t i = 0; i < width; ++i) expected[at + i] /= sum;
    }
    return expected;
  }

  void expect_close_scores(const std::string& dtype, std::int32_t length, float soft_cap,
                           bool has_sinks, bool has_means) {
    SCOPED_TRACE(testing::Message() << dtype << ", " << length << " keys, cap " << soft_cap
                                    << ", sinks " << has_sinks << ", means " << has_means);
    DecodeProblem problem{.head_dim = head_dim,
                          .query_heads = heads,
                          .dtype = dtype,
                          .scales = dtype == "fp8"        ? "unit"
                                    : dtype == "bfloat16" ? "auto"
                                                          : "dynamic",
                          .lengths = {length}};
    if (has_means) problem.constants.key_mean = random_floats(2 * head_dim, 9, 2.0f);
    make(problem);
    sinks_.clear();
    if (has_sinks) sinks_ = random_floats(heads, 4, 2.0f);
    means_.clear();
    for (int head = 0; head < heads && has_means; ++head) {
      double of_mean = 0;
      for (int i = 0; i < head_dim; ++i) {
        of_mean += double{query_[static_cast<std::size_t>(head * head_dim + i)]} * mean_of(head)[i];
      }
      means_.push_back(static_cast<float>(of_mean));
    }
    const DeviceArray<float> device_sinks(sinks_);
    const DeviceArray<float> device_means(means_);
    scores_ = {};
    scores_.soft_cap = soft_cap;
    if (has_sinks) scores_.sinks = device_sinks.data();
    if (has_means) scores_.query_means = device_means.data();
    DecodeSm90Workspace workspace(shape(), 1);
    const std::vector<float> output = run(workspace);
    const std::vector<double> wanted = reference();
    EXPECT_LE(worst_error(output, wanted), bound);
    if (dtype != "int8:fp8") {
      const std::vector<double> expected = sum_written_out();
      EXPECT_LE(worst_error(output, expected), bound);
      EXPECT_LE(worst_error(std::vector<float>(wanted.begin(), wanted.end()), expected), 1e-6);
    }
    scores_ = {};
  }
};

TEST_F(DecodeSm90Scores, SinksAndSoftCapsWithAndWithoutMeans) {
  for (const char* dtype : {"fp8", "bfloat16", "int8:fp8"}) {
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
