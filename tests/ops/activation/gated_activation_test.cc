#include "ops/activation/gated_activation.h"

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

constexpr Activation activations[] = {Activation::silu, Activation::gelu_tanh};

void expect_near_reference(InstructionSet set, Activation activation,
                           const std::vector<float>& gate, const std::vector<float>& up) {
  ThreadPool pool(2);
  std::vector<float> y(gate.size(), poison);
  const GatedActivationArgs args = {.activation = activation,
                                    .gate = gate.data(),
                                    .up = up.data(),
                                    .y = y.data(),
                                    .rows = 1,
                                    .width = static_cast<std::int64_t>(gate.size())};
  std::vector<double> expected(gate.size());
  gated_activation_reference(args, expected.data());
  gated_activation({&pool, set}, args);
  for (std::size_t i = 0; i < gate.size(); ++i) {
    // The bounds that the header states, and half the smallest subnormal for tiny products.
    const double a = gate[i];
    const bool is_gelu = activation == Activation::gelu_tanh;
    const double z = is_gelu ? a * (1.5957691216 + 0.0713548163 * a * a) : a;
    const double flushed = z < -88.7 ? 0x1p-121 * std::fabs(up[i]) : 0;
    const double units = is_gelu ? 5.001 + 3 * std::fabs(z) : 5.001;
    // Past the exponential's range the result is the gate or 0 itself, whatever z is off by.
    const double relative = std::min(units, 300.0) * 0x1p-24;
    ASSERT_NEAR(y[i], expected[i], relative * std::fabs(expected[i]) + flushed + 0x1p-149)
        << name_of(set) << " " << name_of(activation) << " gate " << gate[i] << " up " << up[i];
  }
}

TEST(GatedActivation, AgreesWithReference) {
  for (const InstructionSet set : available_instruction_sets()) {
    for (const Activation activation : activations) {
      for (const std::size_t count : {1u, 7u, 8u, 9u, 1000u, 100003u}) {
        expect_near_reference(set, activation, random_floats(count, 1, -20, 20),
                              random_floats(count, 2, -4, 4));
      }
    }
  }
}

TEST(GatedActivation, AgreesWithReferenceAtTheEnds) {
  const std::vector<float> gate = {0.0f,   -0.0f, 1e-30f, -1e-30f, 88.0f, -88.0f, 89.0f, -88.8f,
                                   -89.0f, 1e30f, -1e30f, 1e-45f,  3.0f,  -3.0f,  17.0f, -87.34f};
  const std::vector<float> up(gate.size(), 1.5f);
  for (const InstructionSet set : available_instruction_sets()) {
    for (const Activation activation : activations) {
      expect_near_reference(set, activation, gate, up);
    }
  }
}

// silu(1) = 0.731058578630004879 (the logistic function at 1); PyTorch's documentation of GELU's
// tanh form gives its formula, which is 0.841191990608276 at 1 and -0.0758941 at -1.7.
TEST(GatedActivation, KnownValues) {
  const auto at = [](InstructionSet set, Activation activation, float gate, float up) {
    float y = poison;
    gated_activation(
        {nullptr, set},
        {.activation = activation, .gate = &gate, .up = &up, .y = &y, .rows = 1, .width = 1});
    return y;
  };
  for (const InstructionSet set : available_instruction_sets()) {
    EXPECT_FLOAT_EQ(at(set, Activation::silu, 1, 2), 1.46211715726f);
    EXPECT_FLOAT_EQ(at(set, Activation::gelu_tanh, 1, 2), 1.68238398122f);
    EXPECT_NEAR(at(set, Activation::gelu_tanh, -1.7f, 1), -0.0758941f, 1e-6f);
  }
}

TEST(GatedActivation, BitsDoNotDependOnRowsPositionThreadsOrPlace) {
  for (const InstructionSet set : available_instruction_sets()) {
    const std::int64_t rows = 129;
    const std::int64_t width = 101;
    const std::vector<float> gate = random_floats(rows * width, 3, -10, 10);
    const std::vector<float> up = random_floats(rows * width, 4);
    std::vector<float> expected(rows * width, poison);
    gated_activation(
        {nullptr, set},
        {.gate = gate.data(), .up = up.data(), .y = expected.data(), .rows = rows, .width = width});
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      for (const std::int64_t at_once : {1, 5, 129}) {
        std::vector<float> in_place = gate;
        for (std::int64_t row = 0; row < rows; row += at_once) {
          gated_activation({&pool, set}, {.gate = in_place.data() + row * width,
                                          .up = up.data() + row * width,
                                          .y = in_place.data() + row * width,
                                          .rows = std::min(at_once, rows - row),
                                          .width = width});
        }
        ASSERT_EQ(in_place, expected) << threads << " threads, " << at_once << " rows";
      }
    }
    std::vector<float> over_up = up;
    gated_activation({nullptr, set}, {.gate = gate.data(),
                                      .up = over_up.data(),
                                      .y = over_up.data(),
                                      .rows = rows,
                                      .width = width});
    EXPECT_EQ(over_up, expected);
  }
}

TEST(GatedActivation, NothingToDoAndWhatDoesNotFit) {
  for (const InstructionSet set : available_instruction_sets()) {
    gated_activation({nullptr, set}, {});
    const float value = 1;
    float y = 7;
    gated_activation({nullptr, set},
                     {.gate = &value, .up = &value, .y = &y, .rows = 0, .width = 1});
    EXPECT_EQ(y, 7);
    EXPECT_THROW(gated_activation({nullptr, set},
                                  {.gate = &value, .up = &value, .y = &y, .rows = -1, .width = 1}),
                 Error);
    EXPECT_THROW(gated_activation({nullptr, set}, {.gate = &value, .y = &y, .rows = 1, .width = 1}),
                 Error);
  }
}

}  // namespace
}  // namespace octet
