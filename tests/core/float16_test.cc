#include "core/float16.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace octet {
namespace {

double decode_by_definition(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

// Rounds to a multiple of the unit in the last place, in double, where all of it is exact.
std::uint16_t encode_by_definition(float value) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0) return static_cast<std::uint16_t>(sign);
  int exponent = std::isinf(magnitude) ? 16 : std::max(std::ilogb(magnitude), -14);
  double steps = std::nearbyint(std::ldexp(magnitude, 10 - exponent));  // of 2^(exponent - 10)
  if (steps == 2048) {
    steps = 1024;
    ++exponent;
  }
  if (exponent > 15) return static_cast<std::uint16_t>(sign | 0x7C00);
  const int subnormal = steps < 1024 ? 1 : 0;
  return static_cast<std::uint16_t>(sign | (((exponent + 15 - subnormal) << 10) +
                                            static_cast<int>(steps) - (subnormal ? 0 : 1024)));
}

void expect_encoding(float value) {
  ASSERT_EQ(float_to_float16(value), encode_by_definition(value)) << std::hexfloat << value;
  ASSERT_EQ(float_to_float16(-value), encode_by_definition(-value)) << std::hexfloat << -value;
}

TEST(Float16, DecodesAllCodes) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto code = static_cast<std::uint16_t>(bits);
    const float decoded = float16_to_float(code);
    ASSERT_EQ(std::signbit(decoded), bits >= 0x8000) << bits;
    if ((bits & 0x7C00) != 0x7C00) {
      ASSERT_EQ(decoded, decode_by_definition(code)) << bits;
    } else if ((bits & 0x3FF) == 0) {
      ASSERT_TRUE(std::isinf(decoded)) << bits;
    } else {
      ASSERT_TRUE(std::isnan(decoded)) << bits;
    }
  }
}

TEST(Float16, EncodesEveryCodeEveryTieAndTheirNeighbours) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (std::uint16_t code = 0; code < 0x7C00; ++code) {
    const double exact = decode_by_definition(code);
    ASSERT_EQ(float_to_float16(static_cast<float>(exact)), code);
    // Past the largest code, 65504, the next value would be 65536.
    const double above =
        code == 0x7BFF ? 65536.0 : decode_by_definition(static_cast<std::uint16_t>(code + 1));
    const auto tie = static_cast<float>((exact + above) / 2);
    ASSERT_EQ(float_to_float16(tie), code + code % 2) << std::hexfloat << tie;
    ASSERT_EQ(float_to_float16(std::nextafter(tie, 0.0f)), code) << std::hexfloat << tie;
    ASSERT_EQ(float_to_float16(std::nextafter(tie, infinity)), code + 1) << std::hexfloat << tie;
    expect_encoding(tie);
  }
}

TEST(Float16, EncodesADenseSetOfFloats) {
  // 4,093 is prime: about a million values over every exponent and all patterns of low bits.
  for (std::uint32_t bits = 0; bits < 0x7F800000u; bits += 4093) {
    expect_encoding(std::bit_cast<float>(bits));
  }
}

TEST(Float16, OverflowsToInfinityFrom65520) {
  EXPECT_EQ(float_to_float16(65519.99f), 0x7BFF);
  EXPECT_EQ(float_to_float16(65520.0f), 0x7C00);
  EXPECT_EQ(float_to_float16(-std::numeric_limits<float>::max()), 0xFC00);
  EXPECT_EQ(float_to_float16(std::numeric_limits<float>::infinity()), 0x7C00);
}

TEST(Float16, KeepsNanAndTheSignOfZero) {
  EXPECT_TRUE(std::isnan(float16_to_float(float_to_float16(std::nanf("")))));
  EXPECT_TRUE(std::isnan(float16_to_float(float_to_float16(std::bit_cast<float>(0x7F800001u)))));
  EXPECT_EQ(float_to_float16(std::bit_cast<float>(0xFF800001u)) & 0x8000, 0x8000);
  EXPECT_EQ(float_to_float16(-0.0f), 0x8000);
}

}  // namespace
}  // namespace octet
