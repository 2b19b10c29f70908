#include "ops/attention/hopper_accumulator.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/float8_e4m3.h"

namespace octet {

namespace {

// 2^exponent, for exponents that a double has.
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

// The smallest power of two that is not below x > 0.
float power_of_two_up(float x) {
  const int exponent = std::ilogb(x);
  const float power = std::ldexp(1.0f, exponent);
  return power < x ? 2.0f * power : power;
}

constexpr float largest_weight = 256.0f;  // a power of two, so that 448 leaves room for rounding

class Row {
 public:
  Row(const HopperAccumulation& accumulation, const HopperRow& row)
      : accumulation_(accumulation),
        row_(row),
        width_(static_cast<std::size_t>(row.head_dim)),
        total_(width_, 0.0f),
        working_(width_, 0.0f),
        weights_(static_cast<std::size_t>(accumulation.tile_tokens)) {}

  void run(float* output) {
    const auto tile_tokens = static_cast<std::size_t>(accumulation_.tile_tokens);
    const std::size_t tiles = (row_.scores.size() + tile_tokens - 1) / tile_tokens;
    for (std::size_t i = 0; i < tiles; ++i) {
      const std::size_t tile =
          row_.tile_order.empty() ? i : static_cast<std::size_t>(row_.tile_order[i]);
      const std::size_t first = tile * tile_tokens;
      add_tile(first, std::min(first + tile_tokens, row_.scores.size()));
    }
    promote();
    for (std::size_t d = 0; d < width_; ++d) output[d] = total_[d] / sum_;
  }

 private:
  float value_scale(std::size_t key) const {
    return row_.value_scales.empty() ? 1.0f : row_.value_scales[key];
  }

  // Weights of the keys [first, last) in e4m3, and the unit t that they are in, relative to the
  // exponential of `maximum`.
  float round_weights(std::size_t first, std::size_t last, float maximum) {
    float largest = 0;
    for (std::size_t key = first; key < last; ++key) {
      const float weight = std::exp(row_.scores[key] - maximum) * value_scale(key);
      weights_[key - first] = weight;
      largest = std::max(largest, accumulation_.tile_local_scale ? weight : value_scale(key));
    }
    const float unit = power_of_two_up(std::max(largest, 0x1p-100f)) / largest_weight;
    for (std::size_t key = first; key < last; ++key) {
      float& weight = weights_[key - first];
      exact_sum_ += weight / value_scale(key);
      weight = float8_e4m3_to_float(float_to_float8_e4m3(weight / unit));
      rounded_sum_ += weight / value_scale(key);
    }
    return unit;
  }

  void add_tile(std::size_t first, std::size_t last) {
    const float tile_maximum = *std::max_element(row_.scores.begin() + static_cast<long>(first),
                                                 row_.scores.begin() + static_cast<long>(last));
    const float maximum = std::max(maximum_, tile_maximum);
    const float alpha = std::exp(maximum_ - maximum);
    const float reference = accumulation_.tile_local_scale ? tile_maximum : maximum;
    exact_sum_ = rounded_sum_ = 0;
    const float unit = round_weights(first, last, reference);
    const float factor = std::exp(reference - maximum);
    const float tile_unit = unit * factor;
    sum_ = sum_ * alpha +
           (accumulation_.sums_rounded_weights ? rounded_sum_ * tile_unit : exact_sum_ * factor);
    maximum_ = maximum;
    for (float& total : total_) total *= alpha;

    // What the tensor core holds is brought into this tile's unit.
    if (held_tiles_ > 0) {
      const float into_unit = working_unit_ * alpha / tile_unit;
      for (float& held : working_) held *= into_unit;
    }
    working_unit_ = tile_unit;
    multiply_tile(first, last);
    if (++held_tiles_ == accumulation_.promote_every) promote();
  }

  void multiply_tile(std::size_t first, std::size_t last) {
    float products[hopper_step_products];
    for (std::size_t step = first; step < last; step += hopper_step_products) {
      const std::size_t count = std::min<std::size_t>(hopper_step_products, last - step);
      for (std::size_t d = 0; d < width_; ++d) {
        for (std::size_t i = 0; i < count; ++i) {
          products[i] = weights_[step - first + i] * row_.values[(step + i) * width_ + d];
        }
        working_[d] =
            hopper_accumulate(working_[d], {products, count}, accumulation_.accumulator_bits);
      }
    }
  }

  void promote() {
    if (held_tiles_ == 0) return;
    for (std::size_t d = 0; d < width_; ++d) {
      total_[d] += working_[d] * working_unit_;
      working_[d] = 0;
    }
    held_tiles_ = 0;
  }

  const HopperAccumulation& accumulation_;
  const HopperRow& row_;
  std::size_t width_;
  std::vector<float> total_;    // float32, relative to the exponential of maximum_
  std::vector<float> working_;  // the tensor core's, in working_unit_
  std::vector<float> weights_;
  float working_unit_ = 1;
  int held_tiles_ = 0;
  float maximum_ = -std::numeric_limits<float>::infinity();
  float sum_ = 0;
  float exact_sum_ = 0;
  float rounded_sum_ = 0;
};

}  // namespace

float hopper_accumulate(float accumulator, std::span<const float> products, int bits) {
  std::uint32_t largest = std::bit_cast<std::uint32_t>(accumulator) & 0x7FFFFFFFu;
  for (const float product : products) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(product) & 0x7FFFFFFFu);
  }
  const int exponent = static_cast<int>(largest >> 23) - 127;
  if (largest == 0) return 0.0f;
  const double unit = power_of_two(exponent - (bits - 1));
  const double into_units = power_of_two(bits - 1 - exponent);
  // The conversion drops what lies below a unit, toward zero.
  auto sum = static_cast<std::int64_t>(accumulator * into_units);
  for (const float product : products) sum += static_cast<std::int64_t>(product * into_units);
  const auto magnitude = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
  const int excess = std::max(static_cast<int>(std::bit_width(magnitude)) - bits, 0);
  const double kept = static_cast<double>(magnitude >> excess << excess) * unit;
  return static_cast<float>(sum < 0 ? -kept : kept);
}

void hopper_weighted_values(const HopperAccumulation& accumulation, const HopperRow& row,
                            float* output) {
  Row(accumulation, row).run(output);
}

}  // namespace octet
