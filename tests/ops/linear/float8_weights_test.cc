// Weights of type float8_e4m3 with scales: the kernels multiply with exactly the product of code
// and scale, wherever blocks of scales begin and end.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/float8_e4m3.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/linear/random_weights.h"

namespace octet {
namespace {

struct Layout {
  std::int64_t outputs;
  std::int64_t k;
  std::int64_t block_rows;
  std::int64_t block_columns;
};

// One scale; one for each row; blocks that fit, that are cut off, and that are smaller than a tile.
constexpr Layout layouts[] = {{9, 70, 9, 70},     {9, 70, 1, 70},   {7, 256, 4, 128},
                              {53, 300, 16, 128}, {5, 97, 128, 32}, {4, 31, 1, 32},
                              {3, 1, 1, 1},       {6, 64, 2, 64}};

class ScaledWeights {
 public:
  ScaledWeights(const Layout& layout, unsigned seed) : random_(seed) {
    codes_.resize(1 + static_cast<std::size_t>(layout.outputs * layout.k));
    for (std::byte& code : codes_) {
      const auto value = random_() % 254;  // all but the two NaN
      code = static_cast<std::byte>(value < 127 ? value : value + 1);
    }
    auto scales = std::make_shared<TensorScales>();
    scales->block_rows = layout.block_rows;
    scales->block_columns = layout.block_columns;
    scales->grid_columns = (layout.k - 1) / layout.block_columns + 1;
    const std::int64_t grid_rows = (layout.outputs - 1) / layout.block_rows + 1;
    for (std::int64_t i = 0; i < grid_rows * scales->grid_columns; ++i) {
      scales->values.push_back(random_scale());
    }
    view_ = {.name = "scaled",
             .dtype = DataType::float8_e4m3,
             .shape = {layout.outputs, layout.k},
             .data = codes_.data() + 1,
             .bytes = codes_.size() - 1,
             .scales = scales};
  }

  const TensorView& view() const { return view_; }
  // The definition, for itself.
  float value(std::int64_t row, std::int64_t column) const {
    const auto code = std::to_integer<std::uint8_t>(view_.data[row * view_.shape[1] + column]);
    const TensorScales& scales = *view_.scales;
    return float8_e4m3_to_float(code) *
           scales.values[row / scales.block_rows * scales.grid_columns +
                         column / scales.block_columns];
  }

 private:
  float random_scale() {
    if (random_() % 8 == 0) return 0;
    if (random_() % 8 == 0) return 0x1p-140f;  // subnormal, and so is its product
    return std::uniform_real_distribution<float>(1e-4f, 1e-2f)(random_);
  }

  std::mt19937 random_;
  std::vector<std::byte> codes_;
  TensorView view_;
};

TEST(Float8Weights, EveryWeightIsTheRoundedProduct) {
  ThreadPool pool(2);
  for (const InstructionSet set : available_instruction_sets()) {
    for (const Layout& layout : layouts) {
      const ScaledWeights weights(layout, 11);
      std::vector<float> identity(layout.k * layout.k, 0.0f);
      for (std::int64_t i = 0; i < layout.k; ++i) identity[i * layout.k + i] = 1.0f;
      for (const std::int64_t rows :
           {std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{4}, layout.k}) {
        std::vector<float> y(layout.k * layout.outputs, std::numeric_limits<float>::quiet_NaN());
        for (std::int64_t row = 0; row < layout.k; row += rows) {
          linear({&pool, set}, {.x = identity.data() + row * layout.k,
                                .rows = std::min(rows, layout.k - row),
                                .x_stride = layout.k,
                                .weight = &weights.view(),
                                .y = y.data() + row * layout.outputs,
                                .y_stride = layout.outputs});
        }
        for (std::int64_t k = 0; k < layout.k; ++k) {
          for (std::int64_t output = 0; output < layout.outputs; ++output) {
            ASSERT_EQ(y[k * layout.outputs + output], weights.value(output, k))
                << name_of(set) << ", " << rows << " rows, output " << output << ", element " << k;
          }
        }
      }
    }
  }
}

// The same sums as those of a float32 copy of the weights, to the bit.
TEST(Float8Weights, ARowHasTheBitsThatFloat32WeightsGive) {
  constexpr std::int64_t total = 33;
  for (const InstructionSet set : available_instruction_sets()) {
    for (const Arithmetic arithmetic : {Arithmetic::float32, Arithmetic::bfloat16}) {
      for (const Layout& layout : layouts) {
        const ScaledWeights weights(layout, 12);
        std::vector<float> copy;
        for (std::int64_t row = 0; row < layout.outputs; ++row) {
          for (std::int64_t k = 0; k < layout.k; ++k) copy.push_back(weights.value(row, k));
        }
        const TensorView copy_view = {.name = "copy",
                                      .dtype = DataType::float32,
                                      .shape = weights.view().shape,
                                      .data = reinterpret_cast<const std::byte*>(copy.data()),
                                      .bytes = copy.size() * sizeof(float)};
        const std::vector<float> x = random_floats(total * layout.k, 13);
        const std::vector<float> bias = random_floats(layout.outputs, 14);
        const auto run = [&](const TensorView& weight, int threads, std::int64_t rows) {
          ThreadPool pool(threads);
          std::vector<float> y(total * layout.outputs);
          for (std::int64_t row = 0; row < total; row += rows) {
            linear({&pool, set, arithmetic}, {.x = x.data() + row * layout.k,
                                              .rows = std::min(rows, total - row),
                                              .x_stride = layout.k,
                                              .weight = &weight,
                                              .bias = bias.data(),
                                              .y = y.data() + row * layout.outputs,
                                              .y_stride = layout.outputs});
          }
          return y;
        };
        const std::vector<float> expected = run(copy_view, 1, total);
        for (const int threads : {1, 2}) {
          for (const std::int64_t rows : {1, 2, 3, 4, 5, 33}) {
            const std::vector<float> y = run(weights.view(), threads, rows);
            for (std::size_t i = 0; i < y.size(); ++i) {
              ASSERT_EQ(std::bit_cast<std::uint32_t>(y[i]),
                        std::bit_cast<std::uint32_t>(expected[i]))
                  << name_of(set) << ", " << rows << " rows, " << threads << " threads, k "
                  << layout.k << ", element " << i;
            }
          }
        }
      }
    }
  }
}

TEST(Float8Weights, EveryCodeOnEveryPath) {
  for (const InstructionSet set : available_instruction_sets()) {
    std::vector<std::byte> codes(256);
    for (int code = 0; code < 256; ++code) codes[code] = static_cast<std::byte>(code);
    const TensorView view = {.name = "codes",
                             .dtype = DataType::float8_e4m3,
                             .shape = {256, 1},
                             .data = codes.data(),
                             .bytes = 256};
    for (const std::int64_t rows : {1, 7}) {
      const std::vector<float> x(rows, 1.0f);
      std::vector<float> y(rows * 256);
      linear({nullptr, set}, {.x = x.data(),
                              .rows = rows,
                              .x_stride = 1,
                              .weight = &view,
                              .y = y.data(),
                              .y_stride = 256});
      for (int code = 0; code < 256; ++code) {
        const float expected = float8_e4m3_to_float(static_cast<std::uint8_t>(code));
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(y[code])) << name_of(set) << " code " << code;
        } else {
          EXPECT_EQ(y[code], expected) << name_of(set) << " code " << code;
        }
      }
    }
  }
}

TEST(Float8Weights, EmbeddingRowsAreScaled) {
  const Layout layout = {9, 70, 2, 32};
  const ScaledWeights table(layout, 15);
  const std::vector<std::int32_t> tokens = {8, 0, 3};
  std::vector<float> y(tokens.size() * 70);
  embedding({nullptr, InstructionSet::portable},
            {.table = &table.view(), .tokens = tokens.data(), .rows = 3, .y = y.data()});
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    for (std::int64_t column = 0; column < 70; ++column) {
      EXPECT_EQ(y[row * 70 + column], table.value(tokens[row], column));
    }
  }
}

TEST(Float8Weights, RefusesScalesThatDoNotFit) {
  const ScaledWeights weights({8, 64, 2, 32}, 16);
  const std::vector<float> x(64);
  std::vector<float> y(8);
  const auto expect_error = [&](auto change, const std::string& part) {
    TensorView view = weights.view();
    auto scales = std::make_shared<TensorScales>(*view.scales);
    change(view, *scales);
    view.scales = scales;
    try {
      linear({nullptr, InstructionSet::portable}, {.x = x.data(),
                                                   .rows = 1,
                                                   .x_stride = 64,
                                                   .weight = &view,
                                                   .y = y.data(),
                                                   .y_stride = 8});
      ADD_FAILURE() << "no error: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::internal);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  expect_error([](TensorView&, TensorScales& scales) { scales.values.pop_back(); }, "more scales");
  expect_error([](TensorView&, TensorScales& scales) { scales.grid_columns = 1; }, "more scales");
  expect_error([](TensorView&, TensorScales& scales) { scales.block_rows = 0; }, "at least one");
  expect_error([](TensorView&, TensorScales& scales) { scales.block_columns = 33; },
               "a multiple of 32 columns");
  expect_error(
      [](TensorView& view, TensorScales&) {
        view.dtype = DataType::q8_0;
        view.shape = {1, 64};
      },
      "no scales for this type");
}

}  // namespace
}  // namespace octet
