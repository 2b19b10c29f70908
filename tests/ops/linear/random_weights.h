// Random stored weights of any type for the tests of ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/data_type.h"
#include "core/float16.h"
#include "core/tensor_view.h"

namespace octet {
inline namespace test_support {

// Where a block keeps its float16 scale and minimum; -1: none.
struct ScaleOffsets {
  int scale = -1;
  int minimum = -1;
};

inline ScaleOffsets scale_offsets(DataType dtype) {
  switch (dtype) {
    case DataType::q4_1:
    case DataType::q5_1:
    case DataType::q4_k:
    case DataType::q5_k:
      return {0, 2};
    case DataType::q4_0:
    case DataType::q5_0:
    case DataType::q8_0:
    case DataType::iq4_nl:
    case DataType::iq4_xs:
      return {0, -1};
    case DataType::q2_k:
      return {80, 82};
    case DataType::q3_k:
      return {108, -1};
    case DataType::q6_k:
      return {208, -1};
    default:
      return {};
  }
}

class RandomWeights {
 public:
  // Quants and sub-scales are random bytes; float16 scales are of either sign, one in eight zero
  // and one in eight subnormal. The data starts at an odd address.
  RandomWeights(DataType dtype, std::int64_t outputs, std::int64_t k, unsigned seed)
      : random_(seed) {
    const DataTypeTraits traits = traits_of(dtype);
    const auto blocks = static_cast<std::size_t>(outputs * (k / traits.block_elements));
    bytes_.resize(1 + blocks * traits.block_bytes);
    view_ = {.name = std::string(traits.name),
             .dtype = dtype,
             .shape = {outputs, k},
             .data = bytes_.data() + 1,
             .bytes = bytes_.size() - 1};
    for (std::size_t block = 0; block < blocks; ++block) {
      fill_block(dtype, bytes_.data() + 1 + block * traits.block_bytes, traits.block_bytes);
    }
  }

  const TensorView& view() const { return view_; }

 private:
  float uniform(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random_);
  }

  std::uint16_t random_scale() {
    const unsigned choice = random_() % 8;
    if (choice == 0) return 0;
    if (choice == 1)
      return static_cast<std::uint16_t>(random_() % 2 * 0x8000u + random_() % 0x400u);
    return float_to_float16(uniform(-0.1f, 0.1f));
  }

  void fill_block(DataType dtype, std::byte* block, std::size_t size) {
    if (dtype == DataType::float32) {
      const float value = uniform(-1, 1);
      std::memcpy(block, &value, sizeof(value));
      return;
    }
    if (dtype == DataType::float16 || dtype == DataType::bfloat16) {
      // Any finite magnitude that leaves sums finite: exponents from subnormal to about 2.

      const auto bits = static_cast<std::uint16_t>(random_() % 0x4000u + (random_() % 2) * 0x8000u);
      std::memcpy(block, &bits, sizeof(bits));
      return;
    }
    for (std::size_t i = 0; i < size; ++i) block[i] = static_cast<std::byte>(random_() & 0xFFu);
    if (dtype == DataType::float8_e4m3 && (block[0] & std::byte{0x7F}) == std::byte{0x7F}) {
      block[0] ^= std::byte{1};  // no NaN
    }
    // An exponent from the least one, whose scale is subnormal, to where sums are of size 1.
    if (dtype == DataType::mxfp4) block[0] = static_cast<std::byte>(random_() % 128);
    const ScaleOffsets offsets = scale_offsets(dtype);
    for (const int offset : {offsets.scale, offsets.minimum}) {
      if (offset < 0) continue;
      const std::uint16_t scale = random_scale();
      std::memcpy(block + offset, &scale, sizeof(scale));
    }
  }

  std::mt19937 random_;
  std::vector<std::byte> bytes_;
  TensorView view_;
};

inline std::vector<float> random_floats(std::size_t count, unsigned seed, float low = -1,
                                        float high = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

}  // namespace test_support
}  // namespace octet
