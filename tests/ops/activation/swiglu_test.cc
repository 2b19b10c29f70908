#include "ops/activation/swiglu.h"

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

void expect_near_reference(InstructionSet set, const std::vector<float>& gate,
                           const std::vector<float>& up) {
  ThreadPool pool(2);
  std::vector<float> y(gate.size(), poison);
  const SwigluArgs args = {.gate = gate.data(),
                           .up = up.data(),
                           .y = y.data(),
                           .rows = 1,
                           .width = static_cast<std::int64_t>(gate.size())};
  std::vector<double> expected(gate.size());
  swiglu_reference(args, expected.data());
  swiglu({&pool, set}, args);
  for (std::size_t i = 0; i < gate.size(); ++i) {
    // The bounds that swiglu.h states, and half the smallest subnormal for tiny products.
    const double flushed = gate[i] < -88.7f ? 0x1p-121 * std::fabs(up[i]) : 0;
    ASSERT_NEAR(y[i], expected[i], 5.001 * 0x1p-24 * std::fabs(expected[i]) + flushed + 0x1p-149)
        << name_of(set) << " gate " << gate[i] << " up " << up[i];
  }
}

TEST(Swiglu, AgreesWithReference) {
  for (const InstructionSet set : available_instruction_sets()) {
    for (const std::size_t count : {1u, 7u, 8u, 9u, 1000u, 100003u}) {
      expect_near_reference(set, random_floats(count, 1, -20, 20), random_floats(count, 2, -4, 4));
    }
  }
}

TEST(Swiglu, AgreesWithReferenceAtTheEnds) {
  const std::vector<float> gate = {0.0f,   -0.0f, 1e-30f, -1e-30f, 88.0f, -88.0f, 89.0f, -88.8f,
                                   -89.0f, 1e30f, -1e30f, 1e-45f,  3.0f,  -3.0f,  17.0f, -87.34f};
  const std::vector<float> up(gate.size(), 1.5f);
  for (const InstructionSet set : available_instruction_sets()) {
    expect_near_reference(set, gate, up);
  }
}

// silu(1) = 0.731058578630004879 (the logistic function at 1).
TEST(Swiglu, KnownValue) {
  for (const InstructionSet set : available_instruction_sets()) {
    const float gate = 1;
    const float up = 2;
    float y = poison;
    swiglu({nullptr, set}, {.gate = &gate, .up = &up, .y = &y, .rows = 1, .width = 1});
    EXPECT_FLOAT_EQ(y, 1.46211715726f);
  }
}

TEST(Swiglu, BitsDoNotDependOnRowsPositionThreadsOrPlace) {
  for (const InstructionSet set : available_instruction_sets()) {
    const std::int64_t rows = 129;
    const std::int64_t width = 101;
    const std::vector<float> gate = random_floats(rows * width, 3, -10, 10);
    const std::vector<float> up = random_floats(rows * width, 4);
    std::vector<float> expected(rows * width, poison);
    swiglu(
        {nullptr, set},
        {.gate = gate.data(), .up = up.data(), .y = expected.data(), .rows = rows, .width = width});
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      for (const std::int64_t at_once : {1, 5, 129}) {
        std::vector<float> in_place = gate;
        for (std::int64_t row = 0; row < rows; row += at_once) {
          swiglu({&pool, set}, {.gate = in_place.data() + row * width,
                                .up = up.data() + row * width,
                                .y = in_place.data() + row * width,
                                .rows = std::min(at_once, rows - row),
                                .width = width});
        }
        ASSERT_EQ(in_place, expected) << threads << " threads, " << at_once << " rows";
      }
    }
    std::vector<float> over_up = up;
    swiglu({nullptr, set}, {.gate = gate.data(),
                            .up = over_up.data(),
                            .y = over_up.data(),
                            .rows = rows,
                            .width = width});
    EXPECT_EQ(over_up, expected);
  }
}

TEST(Swiglu, NothingToDoAndWhatDoesNotFit) {
  for (const InstructionSet set : available_instruction_sets()) {
    swiglu({nullptr, set}, {});
    const float value = 1;
    float y = 7;
    swiglu({nullptr, set}, {.gate = &value, .up = &value, .y = &y, .rows = 0, .width = 1});
    EXPECT_EQ(y, 7);
    EXPECT_THROW(
        swiglu({nullptr, set}, {.gate = &value, .up = &value, .y = &y, .rows = -1, .width = 1}),
        Error);
    EXPECT_THROW(swiglu({nullptr, set}, {.gate = &value, .y = &y, .rows = 1, .width = 1}), Error);
  }
}

}  // namespace
}  // namespace octet
