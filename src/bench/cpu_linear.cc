#include "bench/cpu_linear.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <random>
#include <vector>

#include "core/error.h"
#include "ops/linear/linear.h"

namespace octet {
namespace {

constexpr std::size_t bytes_of_all_copies = std::size_t{64} << 20;
constexpr double least_seconds = 0.2;
constexpr std::size_t least_calls = 10;

// Any two bytes with bit 6 clear are a float16 below 2, so that scales are finite wherever a block
// has them.
std::vector<std::byte> random_weights(std::size_t bytes) {
  std::mt19937 random(1);
  std::vector<std::byte> weights(bytes);
  for (std::byte& byte : weights) byte = static_cast<std::byte>(random() & 0xBFu);
  return weights;
}

std::vector<float> random_rows(std::int64_t elements) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> rows(static_cast<std::size_t>(elements));
  for (float& value : rows) value = normal(random);
  return rows;
}

// Median seconds of a call, copies in turn.
double time_calls(const OpContext& context, LinearArgs args, std::vector<TensorView> copies) {
  std::vector<double> seconds;
  double total = 0;
  while (total < least_seconds || seconds.size() < least_calls) {
    args.weight = &copies[seconds.size() % copies.size()];
    const auto start = std::chrono::steady_clock::now();
    linear(context, args);
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    total += seconds.back();
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace

CpuLinearFigure bench_cpu_linear(const OpContext& context, DataType dtype, std::int64_t rows,
                                 std::int64_t outputs, std::int64_t inputs) {
  const DataTypeTraits traits = traits_of(dtype);
  if (rows < 1 || outputs < 1 || inputs < 1 || inputs % traits.block_elements != 0) {
    throw_bad_input("{} rows times a matrix of {} x {}: expected whole blocks of {} elements", rows,
                    outputs, inputs, traits.block_elements);
  }
  const std::size_t bytes = static_cast<std::size_t>(outputs) *
                            (static_cast<std::size_t>(inputs) / traits.block_elements) *
                            traits.block_bytes;
  const std::size_t copies = (bytes_of_all_copies - 1) / bytes + 1;
  const std::vector<std::byte> weights = random_weights(copies * bytes);
  std::vector<TensorView> views;
  for (std::size_t copy = 0; copy < copies; ++copy) {
    views.push_back({.name = "random",
                     .dtype = dtype,
                     .shape = {outputs, inputs},
                     .data = weights.data() + copy * bytes,
                     .bytes = bytes});
  }
  const std::vector<float> x = random_rows(rows * inputs);
  std::vector<float> y(static_cast<std::size_t>(rows * outputs));
  const double seconds = time_calls(
      context,
      {.x = x.data(), .rows = rows, .x_stride = inputs, .y = y.data(), .y_stride = outputs}, views);
  return {.dtype = dtype,
          .rows = rows,
          .outputs = outputs,
          .inputs = inputs,
          .seconds = seconds,
          .gb_per_s = static_cast<double>(bytes) / seconds / 1e9,
          .gflops = 2.0 * static_cast<double>(rows * outputs * inputs) / seconds / 1e9};
}

}  // namespace octet
