// The fused RMS norm against the CPU's in double precision.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "core/bfloat16.h"
#include "core/cuda/device_memory.h"
#include "core/error.h"
#include "ops/norm/rms_norm.h"
#include "ops/norm/rms_norm_cuda.h"
#include "support/gpu_values.h"

namespace octet {
namespace {

constexpr float epsilon = 1e-5f;

struct Shape {
  std::int64_t rows = 1;
  std::int64_t width = 64;
  bool has_branch = true;
  bool has_branch_norm = false;
  bool gathers = false;
};

std::vector<double> normed(const std::vector<double>& x, const std::vector<float>& weight) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] / std::sqrt(sum / static_cast<double>(x.size()) + epsilon) * weight[i];
  }
  return y;
}

void expect_close(const Shape& shape) {
  SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.width << ", branch "
                                  << shape.has_branch << ", its norm " << shape.has_branch_norm
                                  << ", gathers " << shape.gathers);
  const auto width = static_cast<std::size_t>(shape.width);
  const std::size_t count = static_cast<std::size_t>(shape.rows) * width;
  const std::vector<float> residual = random_floats(count, 1, 3.0f);
  const std::vector<float> branch = random_bfloat16_floats(count, 2);
  const std::vector<float> weight = random_floats(width, 3);
  const std::vector<float> branch_norm = random_floats(width, 4);

  DeviceArray<float> device_residual(residual);
  const DeviceArray<std::uint16_t> device_branch(to_bfloat16s(branch));
  const DeviceArray<float> device_weight(weight);
  const DeviceArray<float> device_branch_norm(branch_norm);
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < shape.rows; ++i) {
    ids.push_back(static_cast<std::int32_t>(i % 3 == 1 ? -1 : shape.rows - 1 - i));
  }
  const DeviceArray<std::int32_t> device_ids(ids);
  DeviceArray<std::uint16_t> y(count);
  y.fill_bytes(0xFF);

  RmsNormCudaArgs args;
  args.residual = device_residual.data();
  if (shape.has_branch) args.branch = as_bfloat16(device_branch);
  if (shape.has_branch_norm) args.branch_norm = device_branch_norm.data();
  args.weight = device_weight.data();
  args.y = as_bfloat16(y);
  if (shape.gathers) args.row_ids = device_ids.data();
  args.rows = shape.rows;
  args.width = shape.width;
  args.epsilon = epsilon;
  rms_norm_cuda(gpu_launch(), args);
  const std::vector<float> got = to_floats(y.download());
  const std::vector<float> left = device_residual.download();

  for (std::size_t row = 0; row < static_cast<std::size_t>(shape.rows); ++row) {
    const std::int64_t from = shape.gathers ? ids[row] : static_cast<std::int64_t>(row);
    if (from < 0) {
      for (std::size_t i = 0; i < width; ++i) ASSERT_TRUE(std::isnan(got[row * width + i]));
      continue;
    }
    const std::size_t at = static_cast<std::size_t>(from) * width;
    std::vector<double> sum(residual.begin() + static_cast<std::ptrdiff_t>(at),
                            residual.begin() + static_cast<std::ptrdiff_t>(at + width));
    if (shape.has_branch) {
      std::vector<double> added(branch.begin() + static_cast<std::ptrdiff_t>(at),
                                branch.begin() + static_cast<std::ptrdiff_t>(at + width));
      if (shape.has_branch_norm) added = normed(added, branch_norm);
      for (std::size_t i = 0; i < width; ++i) sum[i] += added[i];
    }
    const std::vector<double> expected = normed(sum, weight);
    // Rounding to bfloat16 is 2^-8 of an element at most, about 1.7e-3 over a row of many.
    EXPECT_LE(relative_error(got, row * width, expected), width < 64 ? 0x1p-8 : 2.3e-3);
    if (shape.gathers) continue;
    EXPECT_LE(relative_error(left, row * width, sum), 1e-6);
  }
  if (shape.gathers) {
    EXPECT_EQ(left, residual);
  }
}

TEST(RmsNormGpu, Sanitized) {
  for (const std::int64_t width : {1, 7, 64, 576, 1153}) {
    for (const bool has_branch : {false, true}) {
      expect_close({.rows = 3, .width = width, .has_branch = has_branch});
    }
    expect_close({.rows = 4, .width = width, .has_branch_norm = true});
    expect_close({.rows = 5, .width = width, .gathers = true});
  }
}

TEST(RmsNormGpu, WidthsOfModels) {
  for (const std::int64_t width : {640, 896, 2048, 4096, 5120, 8192, 16384, 20001, 49152}) {
    expect_close({.rows = 9, .width = width});
    expect_close({.rows = 2, .width = width, .has_branch_norm = true, .gathers = true});
  }
  expect_close({.rows = 5000, .width = 576});
}

TEST(RmsNormGpu, RowsDoNotChangeOneAnother) {
  const std::vector<float> x = random_floats(7 * 4096, 5);
  const DeviceArray<float> weight(random_floats(4096, 6));
  const auto run = [&](std::int64_t rows) {
    DeviceArray<float> residual(x);
    DeviceArray<std::uint16_t> y(7 * 4096);
    RmsNormCudaArgs args;
    args.residual = residual.data();
    args.weight = weight.data();
    args.y = as_bfloat16(y);
    args.rows = rows;
    args.width = 4096;
    args.epsilon = epsilon;
    rms_norm_cuda(gpu_launch(), args);
    std::vector<std::uint16_t> bits = y.download();
    bits.resize(4096);
    return bits;
  };
  EXPECT_EQ(run(1), run(7));
}

TEST(RmsNormGpu, ResidualAlone) {
  DeviceArray<float> residual(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  const DeviceArray<std::uint16_t> branch(to_bfloat16s({1, 1, 1, 1, -1, -1, -1, -1}));
  RmsNormCudaArgs args;
  args.residual = residual.data();
  args.branch = as_bfloat16(branch);
  args.rows = 2;
  args.width = 4;
  rms_norm_cuda(gpu_launch(), args);
  EXPECT_EQ(residual.download(), (std::vector<float>{2, 3, 4, 5, 4, 5, 6, 7}));
}

TEST(RmsNormGpu, Refusals) {
  RmsNormCudaArgs args;
  args.rows = 1;
  args.width = 8;
  EXPECT_THROW(rms_norm_cuda(gpu_launch(), args), Error);
  DeviceArray<float> residual(8);
  args.residual = residual.data();
  args.width = 49156;
  EXPECT_THROW(rms_norm_cuda(gpu_launch(), args), Error);
}

}  // namespace
}  // namespace octet
