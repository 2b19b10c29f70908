#include "ops/linear/linear.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/bfloat16.h"
#include "core/error.h"
#include "files/block_decode.h"
#include "ops/linear/random_weights.h"

namespace octet {
namespace {

constexpr float poison = std::numeric_limits<float>::quiet_NaN();

struct Shape {
  std::int64_t rows;
  std::int64_t outputs;
  std::int64_t k;
};

std::vector<Shape> shapes_of(DataType dtype) {
  const std::int64_t block = traits_of(dtype).block_elements;
  if (block == 1) {
    return {{1, 1, 1},  {1, 5, 31},  {2, 7, 33},   {3, 4, 8},    {4, 6, 100},   {5, 3, 7},
            {7, 9, 65}, {6, 2, 257}, {13, 50, 96}, {1, 66, 577}, {33, 97, 800}, {2, 3, 0}};
  }
  return {{1, 1, block},      {1, 4, block},       {1, 71, 3 * block}, {2, 5, 2 * block},
          {3, 9, block},      {4, 12, 3 * block},  {5, 2, block},      {6, 3, 2 * block},
          {7, 50, 5 * block}, {33, 97, 4 * block}, {2, 3, 0}};
}

// A float32 copy of a weight with every element rounded to bfloat16.
struct RoundedWeights {
  explicit RoundedWeights(const TensorView& weight) {
    const std::int64_t k = weight.shape[1];
    values.resize(static_cast<std::size_t>(weight.elements()));
    for (std::int64_t output = 0; output < weight.shape[0]; ++output) {
      decode_row(weight, output, std::span(values).subspan(output * k, k));
    }
    for (float& value : values) value = round_to_bfloat16(value);
    view = {.name = weight.name,
            .dtype = DataType::float32,
            .shape = weight.shape,
            .data = reinterpret_cast<const std::byte*>(values.data()),
            .bytes = values.size() * sizeof(float)};
  }
  std::vector<float> values;
  TensorView view;
};

// Bound of the error of one output. Each product and each of ceil(K / 8) sums of its lane rounds
// once (the portable kernels do not fuse), three sums join the lanes, one adds the bias; every such
// rounding is off by at most 2^-24 of the sum of magnitudes, or by half the smallest subnormal.
// `smallest` is what a product may lose: the BF16 dot products of AVX-512 flush subnormals to 0.
double error_bound(std::int64_t k, double magnitude, double smallest) {
  const double roundings = static_cast<double>((k + 7) / 8) + 1 + 3 + 1;
  const double unit = roundings * 0x1p-24;
  return unit / (1 - unit) * magnitude + static_cast<double>(k + 4) * smallest;
}

void expect_near_reference(const OpContext& context, DataType dtype, const Shape& shape,
                           bool with_bias) {
  const RandomWeights weights(dtype, shape.outputs, shape.k, 17);
  const std::int64_t x_stride = shape.k + 3;
  const std::int64_t y_stride = shape.outputs + 5;
  std::vector<float> x = random_floats(shape.rows * x_stride, 5);
  const std::vector<float> bias = random_floats(shape.outputs, 6);
  std::vector<float> y(shape.rows * y_stride, poison);

  LinearArgs args = {.x = x.data(),
                     .rows = shape.rows,
                     .x_stride = x_stride,
                     .weight = &weights.view(),
                     .bias = with_bias ? bias.data() : nullptr,
                     .y = y.data(),
                     .y_stride = y_stride};
  linear(context, args);

  const RoundedWeights rounded(weights.view());
  if (context.arithmetic == Arithmetic::bfloat16) {
    for (float& value : x) value = round_to_bfloat16(value);
    args.weight = &rounded.view;
  }
  std::vector<double> expected(shape.rows * shape.outputs);
  linear_reference(args, expected.data());

  const double smallest = context.instruction_set == InstructionSet::avx512_bf16 &&
                                  context.arithmetic == Arithmetic::bfloat16
                              ? 0x1p-126
                              : 0x1p-149;
  std::vector<float> weight_row(shape.k);
  for (std::int64_t output = 0; output < shape.outputs; ++output) {
    decode_row(*args.weight, output, weight_row);
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      double magnitude = with_bias ? std::fabs(bias[output]) : 0;
      for (std::int64_t k = 0; k < shape.k; ++k) {
        magnitude += std::fabs(static_cast<double>(x[row * x_stride + k]) * weight_row[k]);
      }
      ASSERT_NEAR(y[row * y_stride + output], expected[row * shape.outputs + output],
                  error_bound(shape.k, magnitude, smallest))
          << "row " << row << " output " << output;
    }
  }
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t gap = shape.outputs; gap < y_stride; ++gap) {
      ASSERT_TRUE(std::isnan(y[row * y_stride + gap])) << "wrote between rows";
    }
  }
}

TEST(Linear, AgreesWithReferenceForEveryTypeShapeAndInstructionSet) {
  ThreadPool pool(2);
  for (const InstructionSet set : available_instruction_sets()) {
    for (const Arithmetic arithmetic : {Arithmetic::float32, Arithmetic::bfloat16}) {
      for (const DataType dtype : all_data_types) {
        for (const Shape& shape : shapes_of(dtype)) {
          SCOPED_TRACE(std::string(name_of(set)) + " " + std::string(traits_of(dtype).name) +
                       (arithmetic == Arithmetic::bfloat16 ? " bfloat16" : " float32") + " rows " +
                       std::to_string(shape.rows) + " N " + std::to_string(shape.outputs) + " K " +
                       std::to_string(shape.k));
          const OpContext context = {&pool, set, arithmetic};
          expect_near_reference(context, dtype, shape, false);
          expect_near_reference(context, dtype, shape, true);
        }
      }
    }
  }
}

// A one-hot row picks single weights: each must come out as the exact float32 that the format's
// formula defines, on the direct path (1 to 4 rows) and through the panels.
TEST(Linear, DecodesEveryWeightExactly) {
  ThreadPool pool(1);
  for (const InstructionSet set : available_instruction_sets()) {
    for (const DataType dtype : all_data_types) {
      SCOPED_TRACE(std::string(name_of(set)) + " " + std::string(traits_of(dtype).name));
      const std::int64_t k = 256;
      const std::int64_t outputs = 9;
      const RandomWeights weights(dtype, outputs, k, 23);
      std::vector<float> identity(k * k, 0.0f);
      for (std::int64_t i = 0; i < k; ++i) identity[i * k + i] = 1.0f;
      std::vector<float> expected(outputs * k);
      decode_blocks(dtype, weights.view().data, expected);
      for (const std::int64_t rows : {1, 2, 3, 4, 256}) {
        std::vector<float> y(k * outputs, poison);
        for (std::int64_t row = 0; row < k; row += rows) {
          const std::int64_t count = std::min(rows, k - row);
          linear({&pool, set}, {.x = identity.data() + row * k,
                                .rows = count,
                                .x_stride = k,
                                .weight = &weights.view(),
                                .y = y.data() + row * outputs,
                                .y_stride = outputs});
        }
        for (std::int64_t i = 0; i < k; ++i) {
          for (std::int64_t output = 0; output < outputs; ++output) {
            ASSERT_EQ(y[i * outputs + output], expected[output * k + i])
                << rows << " rows, element " << i << " of output " << output;
          }
        }
      }
    }
  }
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

// All rows in calls of `rows_per_call`.
std::vector<std::uint32_t> run_in_calls(const OpContext& context, const TensorView& weight,
                                        const std::vector<float>& x, std::int64_t total,
                                        std::int64_t rows_per_call, const float* bias) {
  const std::int64_t outputs = weight.shape[0];
  const std::int64_t k = weight.shape[1];
  std::vector<float> y(total * outputs, poison);
  for (std::int64_t row = 0; row < total; row += rows_per_call) {
    linear(context, {.x = x.data() + row * k,
                     .rows = std::min(rows_per_call, total - row),
                     .x_stride = k,
                     .weight = &weight,
                     .bias = bias,
                     .y = y.data() + row * outputs,
                     .y_stride = outputs});
  }
  return bits_of(y);
}

TEST(Linear, ARowHasTheSameBitsAloneAndAmongAny) {
  const std::int64_t total = 33;
  for (const InstructionSet set : available_instruction_sets()) {
    for (const Arithmetic arithmetic : {Arithmetic::float32, Arithmetic::bfloat16}) {
      for (const DataType dtype : all_data_types) {
        SCOPED_TRACE(std::string(name_of(set)) + " " + std::string(traits_of(dtype).name));
        // 1,024 is past the k_block of the AVX2 kernels.
        const std::int64_t k = traits_of(dtype).block_elements == 1 ? 1023 : 1024;
        const std::int64_t outputs = 53;
        const RandomWeights weights(dtype, outputs, k, 31);
        const std::vector<float> x = random_floats(total * k, 32);
        const std::vector<float> bias = random_floats(outputs, 33);
        ThreadPool one(1);
        const auto alone =
            run_in_calls({&one, set, arithmetic}, weights.view(), x, total, 1, bias.data());
        for (const int threads : {1, 2, 3}) {
          ThreadPool pool(threads);
          for (std::int64_t rows = 1; rows <= total; ++rows) {
            if (threads > 1 && rows % 5 != 2) continue;
            ASSERT_EQ(
                run_in_calls({&pool, set, arithmetic}, weights.view(), x, total, rows, bias.data()),
                alone)
                << rows << " rows at a time on " << threads << " threads";
          }
        }
      }
    }
  }
}

TEST(Linear, ARowHasTheSameBitsAloneAndAmong512) {
  const std::int64_t total = 512;
  for (const InstructionSet set : available_instruction_sets()) {
    for (const DataType dtype : all_data_types) {
      SCOPED_TRACE(std::string(name_of(set)) + " " + std::string(traits_of(dtype).name));
      const RandomWeights weights(dtype, 30, 256, 41);
      const std::vector<float> x = random_floats(total * 256, 42);
      ThreadPool one(1);
      const auto alone = run_in_calls({&one, set}, weights.view(), x, total, 1, nullptr);
      for (const int threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        ASSERT_EQ(run_in_calls({&pool, set}, weights.view(), x, total, total, nullptr), alone)
            << threads << " threads";
      }
      // Without a pool the caller does it all.
      ASSERT_EQ(run_in_calls({nullptr, set}, weights.view(), x, total, 100, nullptr), alone);
    }
  }
}

// An output does not depend on how many others are asked for with it.
TEST(Linear, AnOutputHasTheSameBitsInAnySplitOfTheWeight) {
  ThreadPool pool(2);
  for (const InstructionSet set : available_instruction_sets()) {
    for (const DataType dtype : all_data_types) {
      const std::int64_t k = 256;
      const std::int64_t outputs = 50;
      const RandomWeights weights(dtype, outputs, k, 51);
      for (const std::int64_t rows : {1, 3, 9}) {
        const std::vector<float> x = random_floats(rows * k, 52);
        const auto whole = run_in_calls({&pool, set}, weights.view(), x, rows, rows, nullptr);
        for (const std::int64_t first : {1, 7, 48}) {
          TensorView part = weights.view();
          const std::size_t row_bytes = part.bytes / outputs;
          part.shape[0] = outputs - first;
          part.data += first * row_bytes;
          part.bytes -= first * row_bytes;
          const auto some = run_in_calls({&pool, set}, part, x, rows, rows, nullptr);
          for (std::int64_t row = 0; row < rows; ++row) {
            for (std::int64_t output = first; output < outputs; ++output) {
              ASSERT_EQ(some[row * (outputs - first) + output - first],
                        whole[row * outputs + output]);
            }
          }
        }
      }
    }
  }
}

TEST(Linear, NoRowsAndNoOutputsTouchNothing) {
  ThreadPool pool(2);
  for (const InstructionSet set : available_instruction_sets()) {
    const RandomWeights weights(DataType::q4_0, 4, 32, 1);
    linear({&pool, set}, {.weight = &weights.view()});
    const RandomWeights empty(DataType::q4_0, 0, 32, 1);
    float y = 7;
    const std::vector<float> x(32, 1.0f);
    linear({&pool, set},
           {.x = x.data(), .rows = 1, .x_stride = 32, .weight = &empty.view(), .y = &y});
    EXPECT_EQ(y, 7);
  }
}

void expect_internal_error(const LinearArgs& args, const std::string& part) {
  ThreadPool pool(1);
  try {
    linear({&pool, InstructionSet::portable}, args);
    ADD_FAILURE() << "no error: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Linear, RefusesWhatDoesNotFit) {
  const RandomWeights weights(DataType::q4_0, 4, 32, 1);
  const std::vector<float> x(64);
  std::vector<float> y(8);
  const LinearArgs good = {.x = x.data(),
                           .rows = 2,
                           .x_stride = 32,
                           .weight = &weights.view(),
                           .y = y.data(),
                           .y_stride = 4};
  const auto with = [&](auto change) {
    LinearArgs args = good;
    change(args);
    return args;
  };
  expect_internal_error(with([](LinearArgs& args) { args.weight = nullptr; }), "no weight");
  expect_internal_error(with([](LinearArgs& args) { args.rows = -1; }), "at least 0 rows");
  expect_internal_error(with([](LinearArgs& args) { args.x_stride = 31; }), "x_stride");
  expect_internal_error(with([](LinearArgs& args) { args.y_stride = 3; }), "y_stride");
  expect_internal_error(with([](LinearArgs& args) { args.x = nullptr; }), "x, y");
  expect_internal_error(with([](LinearArgs& args) { args.y = nullptr; }), "x, y");

  TensorView view = weights.view();
  const LinearArgs changed = with([&](LinearArgs& args) { args.weight = &view; });
  view.shape = {128};
  expect_internal_error(changed, "a matrix");
  view.shape = {4, 33};
  expect_internal_error(changed, "whole blocks");
  view.shape = {5, 32};
  expect_internal_error(changed, "more bytes");
  view.shape = {-4, 32};
  expect_internal_error(changed, "at least 0");
  view.shape = {std::numeric_limits<std::int64_t>::max(), 32};
  expect_internal_error(changed, "more bytes");
}

}  // namespace
}  // namespace octet
