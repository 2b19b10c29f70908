// Arithmetic::int16 and int8: near the sums of unrounded numbers, the same bits everywhere, and
// what it makes of numbers that are no numbers.
#include "ops/linear/linear_int16.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "files/block_quants.h"
#include "ops/linear/linear.h"
#include "ops/linear/random_weights.h"

namespace octet {
namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<DataType> block_types() {
  std::vector<DataType> types;
  for (const DataType dtype : all_data_types) {
    if (has_quants(dtype)) types.push_back(dtype);
  }
  return types;
}

class LinearIntegers : public ::testing::TestWithParam<Arithmetic> {};

std::string name_of_case(InstructionSet set, DataType dtype) {
  return std::string(name_of(set)) + " " + std::string(traits_of(dtype).name);
}

// Rows of x times a weight, so many rows a call.
std::vector<float> multiply(const OpContext& context, const TensorView& weight,
                            const std::vector<float>& x, std::int64_t rows_per_call,
                            const float* bias = nullptr) {
  const std::int64_t outputs = weight.shape[0];
  const std::int64_t k = weight.shape[1];
  const std::int64_t rows = static_cast<std::int64_t>(x.size()) / k;
  std::vector<float> y(rows * outputs, not_a_number);
  for (std::int64_t row = 0; row < rows; row += rows_per_call) {
    linear(context, {.x = x.data() + row * k,
                     .rows = std::min(rows_per_call, rows - row),
                     .x_stride = k,
                     .weight = &weight,
                     .bias = bias,
                     .y = y.data() + row * outputs,
                     .y_stride = outputs});
  }
  return y;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

// What one output may be off by. Rounding x: half a step of its block of 32, times the weight.
// Adding up: for each scale's elements the sum becomes a float32, the two scales' product is
// rounded, and so are one or two additions to the output; each is off by at most 2^-24 of the
// magnitudes so far, products and minima counted apart.
double error_bound(Arithmetic arithmetic, const TensorView& weight, std::int64_t output,
                   const float* x) {
  const bool int8 = arithmetic == Arithmetic::int8 && takes_int8(weight.dtype);
  const double steps = int8 ? 127 : 32767;
  const DataTypeTraits traits = traits_of(weight.dtype);
  const std::int64_t k = weight.shape[1];
  const int together = elements_per_scale(weight.dtype);
  const std::byte* row = weight.data + output * (k / traits.block_elements * traits.block_bytes);
  double from_x = 0;
  double magnitude = 0;
  for (std::int64_t first = 0; first < k; first += 32) {
    BlockQuants read;
    read_quants(weight.dtype, row + first / traits.block_elements * traits.block_bytes, &read);
    double largest = 0;
    for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(double{x[first + i]}));
    const double step = std::max(largest / steps, 0x1p-120) * (1 + 0x1p-20);
    for (int i = 0; i < 32; ++i) {
      const auto element = static_cast<int>(first % traits.block_elements) + i;
      const double product = double{read.scale[element / together]} * read.quants[element];
      const double minimum = read.minimum[element / together];
      from_x += step / 2 * std::fabs(product + minimum);
      magnitude +=
          (std::fabs(double{x[first + i]}) + step) * (std::fabs(product) + std::fabs(minimum));
    }
  }
  const double folds = static_cast<double>(k) / together;
  const double roundings = folds * (has_minimum(weight.dtype) ? 2 : 1) + 4;
  // The product of the scales may lose what is below 2^-149.
  return from_x + roundings * 0x1p-24 / (1 - roundings * 0x1p-24) * magnitude + folds * 0x1p-122;
}

void expect_near_reference(const OpContext& context, const TensorView& weight,
                           const std::vector<float>& x, std::int64_t rows_per_call) {
  const std::int64_t outputs = weight.shape[0];
  const std::int64_t k = weight.shape[1];
  const std::int64_t rows = static_cast<std::int64_t>(x.size()) / k;
  const std::vector<float> y = multiply(context, weight, x, rows_per_call);
  std::vector<double> expected(rows * outputs);
  std::vector<float> unused(rows * outputs);
  linear_reference({.x = x.data(),
                    .rows = rows,
                    .x_stride = k,
                    .weight = &weight,
                    .y = unused.data(),
                    .y_stride = outputs},
                   expected.data());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t output = 0; output < outputs; ++output) {
      ASSERT_NEAR(y[row * outputs + output], expected[row * outputs + output],
                  error_bound(context.arithmetic, weight, output, x.data() + row * k))
          << "row " << row << " of " << rows << ", output " << output;
    }
  }
}

TEST_P(LinearIntegers, AgreesWithReferenceForEveryTypeAndShape) {
  ThreadPool pool(2);
  for (const InstructionSet set : available_instruction_sets()) {
    for (const DataType dtype : block_types()) {
      const std::int64_t block = traits_of(dtype).block_elements;
      for (const std::int64_t outputs : {1, 7, 8, 9, 16, 17, 50}) {
        for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 13}) {
          SCOPED_TRACE(name_of_case(set, dtype));
          const std::int64_t k = block * (1 + (outputs + rows) % 5);
          const RandomWeights weights(dtype, outputs, k, 61);
          expect_near_reference({&pool, set, GetParam()}, weights.view(),
                                random_floats(rows * k, 62), rows);
        }
      }
    }
  }
}

// Rows whose magnitudes are as uneven as they get: nothing, what is far below a step, subnormals,
// large numbers, one that dwarfs the others of its block.
std::vector<float> extreme_rows(std::int64_t k) {
  std::vector<float> x = random_floats(7 * k, 63);
  for (std::int64_t i = 0; i < k; ++i) {
    x[i] = 0;
    x[k + i] *= 0x1p-130f;
    x[2 * k + i] *= 0x1p-148f;
    x[3 * k + i] *= 1e30f;
    if (i % 32 == 5) x[4 * k + i] = 4096;
    x[5 * k + i] *= std::ldexp(1.0f, static_cast<int>(i % 48) - 24);
    if (i % 64 < 32) x[6 * k + i] = i % 2 == 0 ? 0.0f : -0.0f;
  }
  return x;
}

TEST_P(LinearIntegers, AgreesWithReferenceForExtremeRows) {
  for (const InstructionSet set : available_instruction_sets()) {
    for (const DataType dtype : block_types()) {
      SCOPED_TRACE(name_of_case(set, dtype));
      const RandomWeights weights(dtype, 11, 512, 64);
      for (const std::int64_t rows : {1, 7}) {
        expect_near_reference({nullptr, set, GetParam()}, weights.view(), extreme_rows(512), rows);
      }
    }
  }
}

TEST_P(LinearIntegers, EveryInstructionSetGivesTheSameBits) {
  for (const DataType dtype : block_types()) {
    const std::int64_t k = 1280;  // more than the AVX2 kernels take at once
    const RandomWeights weights(dtype, 37, k, 65);
    std::vector<float> x = random_floats(6 * k, 66);
    const std::vector<float> extreme = extreme_rows(k);
    x.insert(x.end(), extreme.begin(), extreme.end());
    const std::vector<float> bias = random_floats(37, 67);
    const auto expected = bits_of(multiply({nullptr, InstructionSet::portable, GetParam()},
                                           weights.view(), x, 13, bias.data()));
    for (const InstructionSet set : available_instruction_sets()) {
      SCOPED_TRACE(name_of_case(set, dtype));
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 13}) {
        ASSERT_EQ(
            bits_of(multiply({nullptr, set, GetParam()}, weights.view(), x, rows, bias.data())),
            expected)
            << rows << " rows at a time";
      }
    }
  }
}

TEST_P(LinearIntegers, ARowHasTheSameBitsAloneAndAmongAny) {
  const std::int64_t total = 511;
  for (const InstructionSet set : available_instruction_sets()) {
    for (const DataType dtype : block_types()) {
      SCOPED_TRACE(name_of_case(set, dtype));
      const RandomWeights weights(dtype, 35, 256, 68);
      const std::vector<float> x = random_floats(total * 256, 69);
      const auto run = [&](int threads, std::int64_t rows) {
        ThreadPool pool(threads);
        return bits_of(multiply({&pool, set, GetParam()}, weights.view(), x, rows));
      };
      const auto alone = run(1, 1);
      for (std::int64_t rows = 2; rows <= 16; ++rows) {
        ASSERT_EQ(run(static_cast<int>(rows % 3) + 1, rows), alone) << rows << " rows at a time";
      }
      for (const std::int64_t rows : {64, 511}) {
        for (const int threads : {1, 2, 3}) {
          ASSERT_EQ(run(threads, rows), alone)
              << rows << " rows at a time on " << threads << " threads";
        }
      }
    }
  }
}

TEST_P(LinearIntegers, AnOutputHasTheSameBitsInAnySplitOfTheWeight) {
  for (const InstructionSet set : available_instruction_sets()) {
    for (const DataType dtype : block_types()) {
      SCOPED_TRACE(name_of_case(set, dtype));
      const std::int64_t outputs = 50;
      const RandomWeights weights(dtype, outputs, 256, 70);
      for (const std::int64_t rows : {1, 3, 9}) {
        const std::vector<float> x = random_floats(rows * 256, 71);
        const OpContext context = {nullptr, set, GetParam()};
        const auto whole = bits_of(multiply(context, weights.view(), x, rows));
        for (const std::int64_t first : {1, 7, 40, 49}) {
          TensorView part = weights.view();
          const std::size_t row_bytes = part.bytes / outputs;
          part.shape[0] = outputs - first;
          part.data += first * row_bytes;
          part.bytes -= first * row_bytes;
          const auto some = bits_of(multiply(context, part, x, rows));
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

TEST_P(LinearIntegers, ANumberThatIsNoneMakesItsRowNaNAndNoOther) {
  for (const InstructionSet set : available_instruction_sets()) {
    for (const DataType dtype : block_types()) {
      SCOPED_TRACE(name_of_case(set, dtype));
      const RandomWeights weights(dtype, 19, 512, 72);
      const OpContext context = {nullptr, set, GetParam()};
      const std::vector<float> finite = random_floats(9 * 512, 73);
      const std::vector<float> expected = multiply(context, weights.view(), finite, 9);
      for (const float bad : {not_a_number, -not_a_number, infinity, -infinity}) {
        std::vector<float> x = finite;
        x[4 * 512 + 300] = bad;
        for (const std::int64_t rows : {1, 3, 9}) {
          const std::vector<float> y = multiply(context, weights.view(), x, rows);
          for (std::size_t i = 0; i < y.size(); ++i) {
            if (i / 19 == 4) {
              EXPECT_TRUE(std::isnan(y[i])) << bad << ", output " << i % 19;
            } else {
              EXPECT_EQ(y[i], expected[i]) << bad << ", row " << i / 19;
            }
          }
        }
      }
    }
  }
}

// The largest sums that there are stay within 32 bits.
TEST_P(LinearIntegers, TheLargestQuantsDoNotOverflow) {
  for (const InstructionSet set : available_instruction_sets()) {
    for (const int quant : {127, -128}) {
      std::vector<std::byte> block(34 * 9, static_cast<std::byte>(quant));
      for (int row = 0; row < 9; ++row) {
        block[row * 34] = std::byte{0x00};
        block[row * 34 + 1] = std::byte{0x3C};  // 1 as float16
      }
      const TensorView weight = {.name = "largest",
                                 .dtype = DataType::q8_0,
                                 .shape = {9, 32},
                                 .data = block.data(),
                                 .bytes = block.size()};
      for (const std::int64_t rows : {1, 8}) {
        const std::vector<float> x(rows * 32, 32767.0f);
        const std::vector<float> y = multiply({nullptr, set, GetParam()}, weight, x, rows);
        for (const float sum : y) {
          const double expected = 32.0 * 32767 * quant;
          EXPECT_NEAR(sum, expected, std::fabs(expected) * 0x1p-22);
        }
      }
    }
  }
}

TEST_P(LinearIntegers, OtherTypesAreMultipliedAsInFloat32) {
  for (const InstructionSet set : available_instruction_sets()) {
    for (const DataType dtype : all_data_types) {
      if (has_quants(dtype)) continue;
      const RandomWeights weights(dtype, 21, 77, 74);
      const std::vector<float> x = random_floats(9 * 77, 75);
      for (const std::int64_t rows : {1, 9}) {
        EXPECT_EQ(bits_of(multiply({nullptr, set, GetParam()}, weights.view(), x, rows)),
                  bits_of(multiply({nullptr, set, Arithmetic::float32}, weights.view(), x, rows)))
            << name_of_case(set, dtype);
      }
    }
  }
}

TEST_P(LinearIntegers, NoInputsLeaveTheBias) {
  for (const InstructionSet set : available_instruction_sets()) {
    const RandomWeights weights(DataType::q4_1, 3, 0, 76);
    const std::vector<float> bias = {1, 2, 3};
    for (const std::int64_t rows : {1, 7}) {
      const float x = 0;
      std::vector<float> y(rows * 3, not_a_number);
      linear({nullptr, set, GetParam()}, {.x = &x,
                                          .rows = rows,
                                          .x_stride = 0,
                                          .weight = &weights.view(),
                                          .bias = bias.data(),
                                          .y = y.data(),
                                          .y_stride = 3});
      for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], bias[i % 3]);
    }
  }
}

// The words in which the kernels of AVX2 add up bytes hold the largest sums of 4 and 5 bits.
TEST(LinearInt8, TheLargestQuantsDoNotOverflow) {
  struct Case {
    DataType dtype;
    std::size_t block_bytes;
    int quant;
  };
  for (const InstructionSet set : available_instruction_sets()) {
    for (const Case& c : {Case{DataType::q4_1, 20, 15}, Case{DataType::q5_1, 24, 31}}) {
      std::vector<std::byte> blocks(c.block_bytes * 17, std::byte{0xFF});  // every bit of a quant
      for (std::size_t row = 0; row < 17; ++row) {
        std::byte* block = blocks.data() + row * c.block_bytes;
        block[0] = std::byte{0x00};
        block[1] = std::byte{0x3C};  // 1 as float16
        block[2] = block[3] = std::byte{0};
      }
      const TensorView weight = {.name = "largest",
                                 .dtype = c.dtype,
                                 .shape = {17, 32},
                                 .data = blocks.data(),
                                 .bytes = blocks.size()};
      for (const float sign : {1.0f, -1.0f}) {
        for (const std::int64_t rows : {1, 8}) {
          const std::vector<float> x(rows * 32, sign * 127.0f);
          for (const float sum : multiply({nullptr, set, Arithmetic::int8}, weight, x, rows)) {
            EXPECT_EQ(sum, sign * 32 * 127 * static_cast<float>(c.quant)) << name_of(set);
          }
        }
      }
    }
  }
}

// Types that it does not name are as in int16, those that it names are not.
TEST(LinearInt8, RoundsForTypesOfUpToFiveBitsAlone) {
  for (const DataType dtype : block_types()) {
    const RandomWeights weights(dtype, 21, 256, 77);
    const std::vector<float> x = random_floats(3 * 256, 78);
    const auto with = [&](Arithmetic arithmetic) {
      return bits_of(
          multiply({nullptr, InstructionSet::portable, arithmetic}, weights.view(), x, 3));
    };
    EXPECT_EQ(with(Arithmetic::int8) == with(Arithmetic::int16), !takes_int8(dtype))
        << traits_of(dtype).name;
  }
}

INSTANTIATE_TEST_SUITE_P(BothWidths, LinearIntegers,
                         ::testing::Values(Arithmetic::int16, Arithmetic::int8),
                         [](const auto& of) { return std::string(name_of(of.param)); });

}  // namespace
}  // namespace octet
