#include "ops/cpu/exp_array.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace octet {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float smallest_with_result = -0x1.5d589ep+6f;
constexpr float largest_with_result = 0x1.62e42ep+6f;

// Every 97th float whose exponential is normal, 23 million of them; a run over all
// found 0.89 units (AVX2) and 0.98 (portable).
TEST(ExpArray, IsWithinOneUnitInTheLastPlace) {
  for (const InstructionSet set : available_instruction_sets()) {
    double worst = 0;
    float worst_at = 0;
    std::vector<float> x;
    std::vector<float> y;
    const auto check = [&] {
      y.assign(x.size(), std::numeric_limits<float>::quiet_NaN());
      exp_array(set, x.data(), y.data(), static_cast<std::int64_t>(x.size()));
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double exact = std::exp(static_cast<double>(x[i]));
        int exponent = 0;
        std::frexp(exact, &exponent);
        const double error = std::fabs(y[i] - exact) / std::ldexp(1.0, exponent - 24);
        if (!(error <= worst)) {
          worst = error;
          worst_at = x[i];
        }
      }
      x.clear();
    };
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      for (std::uint32_t magnitude = 0; magnitude < 0x42B20000u; magnitude += 97) {
        const auto value = std::bit_cast<float>(sign | magnitude);
        if (value < smallest_with_result || value > largest_with_result) continue;
        x.push_back(value);
        if (x.size() == 4096) check();
      }
    }
    check();
    EXPECT_LE(worst, 1.0) << name_of(set) << " at " << worst_at;
    EXPECT_GT(worst, 0.4) << "no rounding error at all cannot be";
  }
}

TEST(ExpArray, SpecialValues) {
  for (const InstructionSet set : available_instruction_sets()) {
    const std::vector<float> x = {0.0f,
                                  -0.0f,
                                  -infinity,
                                  -1e30f,
                                  -88.0f,
                                  std::nextafter(smallest_with_result, -infinity),
                                  smallest_with_result,
                                  largest_with_result,
                                  std::nextafter(largest_with_result, infinity),
                                  1e30f,
                                  infinity};
    std::vector<float> y(x.size(), std::numeric_limits<float>::quiet_NaN());
    exp_array(set, x.data(), y.data(), static_cast<std::int64_t>(x.size()));
    const std::vector<float> ends = {1.0f, 1.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    for (std::size_t i = 0; i < ends.size(); ++i) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(y[i]), std::bit_cast<std::uint32_t>(ends[i]))
          << name_of(set) << " at " << x[i];
    }
    EXPECT_GE(y[6], std::numeric_limits<float>::min());
    EXPECT_LT(y[7], infinity);
    EXPECT_GT(y[7], 3.4e38f);
    for (std::size_t i = 8; i < x.size(); ++i) EXPECT_EQ(y[i], infinity) << x[i];
  }
}

TEST(ExpArray, EveryNaNStaysNaN) {
  for (const InstructionSet set : available_instruction_sets()) {
    for (const std::uint32_t bits :
         {0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0x7FC001FFu, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
      const auto x = std::bit_cast<float>(bits);
      float y = 0;
      exp_array(set, &x, &y, 1);
      EXPECT_TRUE(std::isnan(y)) << name_of(set) << " " << std::hex << bits;
    }
  }
}

TEST(ExpArray, BitsDoNotDependOnThePosition) {
  for (const InstructionSet set : available_instruction_sets()) {
    std::vector<float> x(67);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = -40.0f + 1.37f * static_cast<float>(i);
    std::vector<float> together(x.size());
    exp_array(set, x.data(), together.data(), static_cast<std::int64_t>(x.size()));
    for (std::size_t count = 1; count <= 9; ++count) {
      for (std::size_t first = 0; first + count <= x.size(); ++first) {
        std::vector<float> y(count + 1, -7.0f);
        exp_array(set, x.data() + first, y.data(), static_cast<std::int64_t>(count));
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(y[i], together[first + i]);
        ASSERT_EQ(y[count], -7.0f) << "wrote past the end";
      }
    }
  }
}

}  // namespace
}  // namespace octet
