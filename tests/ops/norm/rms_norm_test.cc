#include "ops/norm/rms_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "ops/linear/random_weights.h"

namespace octet {
namespace {

constexpr float poison = std::numeric_limits<float>::quiet_NaN();
constexpr float epsilon = 1e-5f;

struct Data {
  Data(std::int64_t rows, std::int64_t width)
      : x(random_floats(rows * width, 1, -3, 3)),
        residual(random_floats(rows * width, 2)),
        weight(random_floats(width, 3, 0.5f, 2.0f)),
        y(rows * width, poison),
        args{.x = x.data(),
             .weight = weight.data(),
             .y = y.data(),
             .rows = rows,
             .width = width,
             .epsilon = epsilon} {}
  std::vector<float> x;
  std::vector<float> residual;
  std::vector<float> weight;
  std::vector<float> y;
  RmsNormArgs args;
};

// Relative to y: the sum of squares takes ceil(width / 32) + 6 roundings (lane, then tree), halved
// by the square root; squares, division, epsilon, root, reciprocal and the two products add one
// each.
double relative_bound(std::int64_t width) {
  const double roundings = static_cast<double>((width + 31) / 32 + 6) / 2 + 7;
  return roundings * 0x1p-24 * 1.001;
}

TEST(RmsNorm, AgreesWithReference) {
  ThreadPool pool(2);
  for (const InstructionSet set : available_instruction_sets()) {
    for (const std::int64_t width : {1, 7, 8, 9, 31, 32, 33, 64, 100, 576, 1000, 4097}) {
      for (const std::int64_t rows : {1, 2, 17}) {
        for (const bool with_residual : {false, true}) {
          Data data(rows, width);
          const std::vector<float> before = data.residual;
          if (with_residual) data.args.residual = data.residual.data();
          std::vector<double> expected(rows * width);
          rms_norm_reference(data.args, expected.data());
          ASSERT_EQ(data.residual, before) << "the reference leaves the residual alone";
          rms_norm({&pool, set}, data.args);
          for (std::int64_t i = 0; i < rows * width; ++i) {
            ASSERT_NEAR(data.y[i], expected[i], relative_bound(width) * std::fabs(expected[i]))
                << name_of(set) << " width " << width << " element " << i;
            ASSERT_EQ(data.residual[i], with_residual ? before[i] + data.x[i] : before[i]);
          }
        }
      }
    }
  }
}

// A value by hand: x = (3, 4), mean square 12.5 and epsilon 12.5 give y = x / 5 * weight.
TEST(RmsNorm, KnownValue) {
  for (const InstructionSet set : available_instruction_sets()) {
    const float x[2] = {3, 4};
    const float weight[2] = {10, 0.5f};
    float y[2] = {poison, poison};
    rms_norm({nullptr, set},
             {.x = x, .weight = weight, .y = y, .rows = 1, .width = 2, .epsilon = 12.5f});
    EXPECT_FLOAT_EQ(y[0], 6.0f);
    EXPECT_FLOAT_EQ(y[1], 0.4f);
  }
}

TEST(RmsNorm, WorksInPlace) {
  for (const InstructionSet set : available_instruction_sets()) {
    Data data(3, 77);
    rms_norm({nullptr, set}, data.args);
    const std::vector<float> expected = data.y;
    data.args.y = data.x.data();
    rms_norm({nullptr, set}, data.args);
    EXPECT_EQ(data.x, expected);
  }
}

TEST(RmsNorm, ARowHasTheSameBitsAloneAndAmongAny) {
  for (const InstructionSet set : available_instruction_sets()) {
    const std::int64_t rows = 130;
    const std::int64_t width = 333;
    Data data(rows, width);
    data.args.residual = data.residual.data();
    const std::vector<float> before = data.residual;
    rms_norm({nullptr, set}, data.args);
    const std::vector<float> expected = data.y;
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      for (const std::int64_t at_once : {1, 2, 7, 64, 130}) {
        data.residual = before;
        data.y.assign(data.y.size(), poison);
        for (std::int64_t row = 0; row < rows; row += at_once) {
          RmsNormArgs part = data.args;
          part.x += row * width;
          part.residual = data.residual.data() + row * width;
          part.y = data.y.data() + row * width;
          part.rows = std::min(at_once, rows - row);
          rms_norm({&pool, set}, part);
        }
        ASSERT_EQ(data.y, expected) << threads << " threads, " << at_once << " rows";
      }
    }
  }
}

TEST(RmsNorm, NothingToDoAndWhatDoesNotFit) {
  for (const InstructionSet set : available_instruction_sets()) {
    rms_norm({nullptr, set}, {});
    Data data(1, 4);
    data.args.rows = 0;
    rms_norm({nullptr, set}, data.args);
    EXPECT_TRUE(std::isnan(data.y[0]));
    data.args.rows = -1;
    EXPECT_THROW(rms_norm({nullptr, set}, data.args), Error);
    data.args.rows = 1;
    data.args.weight = nullptr;
    EXPECT_THROW(rms_norm({nullptr, set}, data.args), Error);
  }
}

}  // namespace
}  // namespace octet
