// The GPU's activations against the CPU's in double precision.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "ops/activation/gated_activation_cuda.h"
#include "support/gpu_values.h"

namespace octet {
namespace {

void expect_close(Activation activation, std::int64_t rows, std::int64_t width, float deviation) {
  SCOPED_TRACE(testing::Message() << name_of(activation) << ", " << rows << " x " << width);
  const auto count = static_cast<std::size_t>(rows * width);
  const std::vector<float> gate_up = random_bfloat16_floats(2 * count, 1, deviation);
  const DeviceArray<std::uint16_t> device(to_bfloat16s(gate_up));
  DeviceArray<std::uint16_t> y(count);
  y.fill_bytes(0xFF);
  gated_activation_cuda(gpu_launch(),
                        {activation, as_bfloat16(device), as_bfloat16(y), rows, width});
  const std::vector<float> got = to_floats(y.download());
  for (std::int64_t row = 0; row < rows; ++row) {
    GatedActivationArgs args;
    args.activation = activation;
    args.gate = gate_up.data() + row * 2 * width;
    args.up = args.gate + width;
    args.rows = 1;
    args.width = width;
    std::vector<double> expected(static_cast<std::size_t>(width));
    gated_activation_reference(args, expected.data());
    for (std::int64_t i = 0; i < width; ++i) {
      const double wanted = expected[static_cast<std::size_t>(i)];
      // Half a step of bfloat16, 2^-8, and float32's own error; far below zero the result
      // is 0, off by 2^-121 of up at most.
      ASSERT_NEAR(got[static_cast<std::size_t>(row * width + i)], wanted,
                  std::fabs(wanted) * 0x1.01p-8 + std::fabs(args.up[i]) * 0x1p-121)
          << "gate " << args.gate[i];
    }
  }
}

TEST(GatedActivationGpu, Sanitized) {
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
    for (const std::int64_t width : {1, 7, 8, 1536, 2049}) expect_close(activation, 3, width, 2.0f);
  }
}

TEST(GatedActivationGpu, LargeAndManyRows) {
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
    expect_close(activation, 2, 14336, 1.0f);
    expect_close(activation, 2, 4096, 20.0f);
    expect_close(activation, 70000, 8, 3.0f);  // more rows than a grid's second extent
  }
}

TEST(GatedActivationGpu, Refusals) {
  EXPECT_THROW(gated_activation_cuda(gpu_launch(), {Activation::silu, nullptr, nullptr, 1, 8}),
               Error);
  EXPECT_THROW(gated_activation_cuda(gpu_launch(), {Activation::silu, nullptr, nullptr, -1, 8}),
               Error);
  EXPECT_THROW(soft_cap_cuda(gpu_launch(), 0.0f, nullptr, 0), Error);
}

TEST(SoftCapGpu, Sanitized) {
  for (const std::int64_t count : {1, 129, 100003}) {
    const std::vector<float> x = random_floats(static_cast<std::size_t>(count), 2, 40.0f);
    DeviceArray<float> device(x);
    soft_cap_cuda(gpu_launch(), 30.0f, device.data(), count);
    const std::vector<float> got = device.download();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double wanted = 30.0 * std::tanh(x[i] / 30.0);
      ASSERT_NEAR(got[i], wanted, std::fabs(wanted) * 1e-6);
    }
  }
}

}  // namespace
}  // namespace octet
