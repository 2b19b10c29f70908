// The order of weights on a GPU, read back as device_packing.h describes it and held to the
// formats' own decoding. The kernels' decoders are tested on a GPU (linear_gpu_test.cc).
#include "ops/linear/device_packing.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/float16.h"
#include "core/float8_e4m3.h"
#include "files/block_decode.h"
#include "ops/linear/random_weights.h"

namespace octet {
namespace {

constexpr int iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};
constexpr int mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// One element of a slab: where it is among the threads of a product.
class SlabElement {
 public:
  SlabElement(const std::byte* slab, int row, int element)
      : slab_(slab), row_(row), element_(element), group_(element / 32), in_group_(element % 32) {
    half_ = in_group_ / 16;
    thread_ = in_group_ % 16 / 4;
    byte_ = in_group_ % 4;
  }

  int four_bits(bool in_order) const {
    const std::uint32_t word = word_at(128 * group_ + 16 * row_ + 4 * thread_);
    return static_cast<int>(word >> (in_order ? 4 * (4 * half_ + byte_) : 8 * byte_ + 4 * half_)) &
           15;
  }
  int eight_bits() const {
    return static_cast<std::int8_t>(
        byte_at(256 * group_ + 32 * row_ + 8 * thread_ + 4 * half_ + byte_));
  }
  int one_bit(int plane) const {
    const std::uint32_t word = word_at(8 * plane + 128 * (group_ / 4) + 16 * row_ + 4 * thread_);
    return static_cast<int>(word >> (8 * byte_ + 2 * (group_ % 4) + half_)) & 1;
  }
  int two_bits(int plane) const {
    const std::uint32_t word = word_at(8 * plane + 128 * (group_ / 2) + 16 * row_ + 4 * thread_);
    return static_cast<int>(word >> (8 * byte_ + 4 * (group_ % 2) + 2 * half_)) & 3;
  }
  // Of an array of `size` bytes a row that begins `offset` bytes into a unit.
  float half_in(int offset, int size, int index) const {
    std::uint16_t bits;
    std::memcpy(&bits, slab_ + 8 * offset + size * row_ + 2 * index, sizeof(bits));
    return float16_to_float(bits);
  }
  int byte_in(int offset, int size, int index) const {
    return byte_at(8 * offset + size * row_ + index);
  }
  // The scale (0) or minimum (1) of six bits of a group in Q4_K's and Q5_K's twelve bytes.
  int six_bits(int offset, bool minimum) const {
    const auto packed = [&](int i) { return byte_in(offset, 16, 4 + i); };
    if (group_ < 4) return packed(group_ + (minimum ? 4 : 0)) & 63;
    const int nibbles = packed(group_ + 4);
    return minimum ? nibbles >> 4 | packed(group_) >> 6 << 4
                   : (nibbles & 15) | packed(group_ - 4) >> 6 << 4;
  }

  float value(DataType dtype) const;

 private:
  std::uint32_t word_at(int offset) const {
    std::uint32_t word;
    std::memcpy(&word, slab_ + offset, sizeof(word));
    return word;
  }
  int byte_at(int offset) const { return std::to_integer<int>(slab_[offset]); }
  float float8() const {
    constexpr int place[] = {1, 3, 0, 2};
    const int at = 256 * group_ + 32 * row_ + in_group_ / 4 * 4 + place[in_group_ % 4];
    return float8_e4m3_to_float(static_cast<std::uint8_t>(byte_at(at)));
  }
  float q3_k() const {
    const int s = element_ / 16;
    const int low = s < 8 ? byte_in(96, 12, s) & 15 : byte_in(96, 12, s - 8) >> 4;
    const int scale = (low | (byte_in(96, 12, 8 + s % 4) >> (s / 4 * 2) & 3) << 4) - 32;
    const int code = (two_bits(0) | one_bit(64) << 2) - 4;
    return half_in(108, 2, 0) * static_cast<float>(scale) * static_cast<float>(code);
  }
  float q2_k() const {
    const int scales = byte_in(64, 16, element_ / 16);
    return half_in(80, 4, 0) * static_cast<float>(scales & 15) * static_cast<float>(two_bits(0)) -
           half_in(80, 4, 1) * static_cast<float>(scales >> 4);
  }
  float with_six_bits(int offset, int code) const {
    return half_in(offset, 16, 0) * static_cast<float>(six_bits(offset, false)) *
               static_cast<float>(code) -
           half_in(offset, 16, 1) * static_cast<float>(six_bits(offset, true));
  }

  const std::byte* slab_;
  int row_;
  int element_;
  int group_;
  int in_group_;
  int half_;
  int thread_;
  int byte_;
};

float SlabElement::value(DataType dtype) const {
  const auto number = [](int code) { return static_cast<float>(code); };
  switch (dtype) {
    case DataType::float8_e4m3:
      return float8();
    case DataType::q4_0:
      return half_in(128, 16, group_) * number(four_bits(false) - 8);
    case DataType::q4_1:
      return half_in(128, 16, group_) * number(four_bits(false)) + half_in(144, 16, group_);
    case DataType::q5_0:
      return half_in(160, 16, group_) * number((four_bits(false) | one_bit(128) << 4) - 16);
    case DataType::q5_1:
      return half_in(160, 16, group_) * number(four_bits(false) | one_bit(128) << 4) +
             half_in(176, 16, group_);
    case DataType::q8_0:
      return half_in(256, 16, group_) * number(eight_bits());
    case DataType::iq4_nl:
      return half_in(128, 16, group_) * number(iq4_values[four_bits(true)]);
    case DataType::iq4_xs:
      return half_in(136, 2, 0) * number(static_cast<std::int8_t>(byte_in(128, 8, group_))) *
             number(iq4_values[four_bits(true)]);
    case DataType::mxfp4:
      return std::ldexp(number(mxfp4_values[four_bits(true)]), byte_in(128, 8, group_) - 128);
    case DataType::q2_k:
      return q2_k();
    case DataType::q3_k:
      return q3_k();
    case DataType::q4_k:
      return with_six_bits(128, four_bits(false));
    case DataType::q5_k:
      return with_six_bits(160, four_bits(false) | one_bit(128) << 4);
    case DataType::q6_k:
      return half_in(208, 2, 0) *
             number(static_cast<std::int8_t>(byte_in(192, 16, element_ / 16))) *
             number((four_bits(false) | two_bits(128) << 4) - 32);
    default:
      return 0;
  }
}

class DevicePacking : public ::testing::TestWithParam<DataType> {};

TEST_P(DevicePacking, KeepsEveryValue) {
  const DataType dtype = GetParam();
  const auto block = static_cast<std::int64_t>(traits_of(dtype).block_elements);
  for (const std::int64_t columns : {block == 1 ? std::int64_t{330} : block, 3 * block,
                                     block == 1 ? std::int64_t{256} : 9 * block}) {
    for (const int rows : {8, 3}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << columns);
      const RandomWeights weights(dtype, rows, columns, 7);
      const TensorView& view = weights.view();
      const std::int64_t row_bytes = device_row_bytes(dtype, columns);
      std::vector<std::byte> packed(static_cast<std::size_t>(8 * row_bytes), std::byte{0xFF});
      pack_device_band(dtype, columns, rows, view.data,
                       static_cast<std::int64_t>(view.bytes) / rows, packed);
      std::vector<float> row(static_cast<std::size_t>(columns));
      for (int r = 0; r < rows; ++r) {
        decode_row(view, r, row);
        for (std::int64_t c = 0; c < columns; ++c) {
          float value = 0;
          if (keeps_row_order(dtype)) {
            const std::size_t size = traits_of(dtype).block_bytes;
            decode_blocks(dtype, packed.data() + r * row_bytes + c * static_cast<int>(size),
                          {&value, 1});
          } else {
            const std::byte* slab =
                packed.data() + c / 256 * device_unit_bytes(dtype) * device_band_rows;
            value = SlabElement(slab, r, static_cast<int>(c % 256)).value(dtype);
          }
          ASSERT_EQ(value, row[static_cast<std::size_t>(c)]) << "row " << r << " column " << c;
        }
      }
    }
  }
}

TEST_P(DevicePacking, TakesWholeSixteensOfBytes) {
  EXPECT_EQ(device_band_rows * device_unit_bytes(GetParam()) % 16, 0);
  EXPECT_GT(device_unit_bytes(GetParam()), 0);
}

INSTANTIATE_TEST_SUITE_P(AllTypes, DevicePacking, testing::ValuesIn(all_data_types),
                         [](const testing::TestParamInfo<DataType>& parameter) {
                           return std::string(traits_of(parameter.param).name);
                         });

TEST(DevicePackingErrors, NameWhatDoesNotFit) {
  std::vector<std::byte> stored(1024);
  std::vector<std::byte> packed(8 * 144);
  EXPECT_THROW(pack_device_band(DataType::q4_0, 48, 1, stored.data(), 18, packed), Error);
  EXPECT_THROW(pack_device_band(DataType::q4_0, 32, 9, stored.data(), 18, packed), Error);
  EXPECT_THROW(pack_device_band(DataType::q4_0, 512, 1, stored.data(), 288, packed), Error);
  EXPECT_NO_THROW(pack_device_band(DataType::q4_0, 32, 8, stored.data(), 18, packed));
}

}  // namespace
}  // namespace octet
