#include "ops/activation/soft_cap.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "ops/linear/random_weights.h"

namespace octet {
namespace {

TEST(SoftCap, IsTheScaledTangentWhateverTheThreads) {
  const std::vector<float> x = random_floats(5000, 7, -120, 120);
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::vector<float> y = x;
    soft_cap({&pool, InstructionSet::portable}, 30.0f, y.data(),
             static_cast<std::int64_t>(y.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double expected = 30.0 * std::tanh(static_cast<double>(x[i]) / 30.0);
      ASSERT_NEAR(y[i], expected, 3e-7 * std::fabs(expected)) << x[i];
    }
  }
}

TEST(SoftCap, KeepsInfinitiesWithinTheCapAndRefusesNonsense) {
  float x[] = {INFINITY, -INFINITY, 0.0f};
  soft_cap({}, 30.0f, x, 3);
  EXPECT_EQ(x[0], 30.0f);
  EXPECT_EQ(x[1], -30.0f);
  EXPECT_EQ(x[2], 0.0f);
  EXPECT_THROW(soft_cap({}, 0.0f, x, 3), Error);
  EXPECT_THROW(soft_cap({}, NAN, x, 3), Error);
  EXPECT_THROW(soft_cap({}, 1.0f, nullptr, 3), Error);
}

}  // namespace
}  // namespace octet
