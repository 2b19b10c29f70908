// Layers of one x, given together, have the bits that they have alone.
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "ops/linear/linear.h"
#include "ops/linear/random_weights.h"

namespace octet {
namespace {

struct Layer {
  RandomWeights weights;
  std::vector<float> bias;
  std::vector<float> y;
};

std::vector<Layer> make_layers(const std::vector<DataType>& types, std::int64_t k,
                               std::int64_t rows) {
  std::vector<Layer> layers;
  std::int64_t outputs = 19;
  for (const DataType dtype : types) {
    const auto seed = static_cast<unsigned>(90 + layers.size());
    layers.push_back({RandomWeights(dtype, outputs, k, seed), random_floats(outputs, seed + 10),
                      std::vector<float>(rows * outputs, std::nanf(""))});
    outputs = outputs * 3 - 40;  // 19, 17, 11
  }
  return layers;
}

LinearArgs args_of(Layer& layer, const std::vector<float>& x, std::int64_t rows) {
  const TensorView& weight = layer.weights.view();
  return {.x = x.data(),
          .rows = rows,
          .x_stride = weight.shape[1],
          .weight = &weight,
          .bias = layer.bias.data(),
          .y = layer.y.data(),
          .y_stride = weight.shape[0]};
}

void expect_same_bits(const OpContext& context, const std::vector<DataType>& types,
                      std::int64_t rows) {
  const std::int64_t k = 512;
  const std::vector<float> x = random_floats(rows * k, 91);
  std::vector<Layer> alone = make_layers(types, k, rows);
  std::vector<Layer> together = make_layers(types, k, rows);
  std::vector<LinearArgs> args;
  for (std::size_t i = 0; i < types.size(); ++i) {
    linear(context, args_of(alone[i], x, rows));
    args.push_back(args_of(together[i], x, rows));
  }
  linear(context, args);
  for (std::size_t i = 0; i < types.size(); ++i) {
    for (std::size_t j = 0; j < alone[i].y.size(); ++j) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(together[i].y[j]),
                std::bit_cast<std::uint32_t>(alone[i].y[j]))
          << name_of(context.instruction_set) << " " << name_of(context.arithmetic) << ", " << rows
          << " rows, layer " << i << ", element " << j;
    }
  }
}

TEST(LinearTogether, HasTheBitsOfOneAfterTheOther) {
  using enum DataType;
  const std::vector<std::vector<DataType>> cases = {
      {q4_1, q4_1, q4_1}, {q4_k, q4_k, q6_k}, {q8_0, q4_0, q8_0}, {bfloat16, bfloat16, float32}};
  for (const InstructionSet set : available_instruction_sets()) {
    for (const Arithmetic arithmetic :
         {Arithmetic::float32, Arithmetic::bfloat16, Arithmetic::int16, Arithmetic::int8}) {
      for (const int threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        for (const auto& types : cases) {
          for (const std::int64_t rows : {1, 4, 5, 40}) {
            expect_same_bits({&pool, set, arithmetic}, types, rows);
          }
        }
      }
    }
  }
}

// Between others, and first and last.
TEST(LinearTogether, ALayerWithoutOutputsIsLeftAlone) {
  ThreadPool pool(2);
  const std::vector<float> x = random_floats(3 * 32, 92);
  Layer none = {RandomWeights(DataType::q4_1, 0, 32, 93), {}, {}};
  std::vector<Layer> some = make_layers({DataType::q4_1}, 32, 3);
  std::vector<Layer> alone = make_layers({DataType::q4_1}, 32, 3);
  const OpContext context = {&pool, available_instruction_sets().back(), Arithmetic::int16};
  linear(context, args_of(alone[0], x, 3));
  linear(context,
         std::vector<LinearArgs>{args_of(none, x, 3), args_of(some[0], x, 3), args_of(none, x, 3)});
  EXPECT_EQ(some[0].y, alone[0].y);
}

TEST(LinearTogether, RefusesLayersOfAnotherInput) {
  const std::vector<float> x = random_floats(2 * 64, 94);
  std::vector<Layer> layers = make_layers({DataType::q4_1, DataType::q4_1}, 32, 2);
  std::vector<LinearArgs> args = {args_of(layers[0], x, 2), args_of(layers[1], x, 2)};
  const auto expect_refused = [](std::vector<LinearArgs> changed) {
    EXPECT_THROW(linear({nullptr, InstructionSet::portable}, changed), Error);
  };
  std::vector<LinearArgs> changed = args;
  changed[1].x += 32;
  expect_refused(changed);
  changed = args;
  changed[1].rows = 1;
  expect_refused(changed);
  changed = args;
  changed[1].x_stride = 64;
  expect_refused(changed);
}

TEST(LinearTogether, NoLayersAreNoWork) {
  linear({nullptr, InstructionSet::portable}, std::span<const LinearArgs>());
}

}  // namespace
}  // namespace octet
