#include "core/bfloat16.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace octet {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::uint16_t infinity_code = 0x7F80;

double decode_by_definition(std::uint16_t bits) {
  const int exponent = (bits >> 7) & 255;
  const int mantissa = bits & 127;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -133) : std::ldexp(128 + mantissa, exponent - 134);
  return bits & 0x8000 ? -magnitude : magnitude;
}

// The value after `code`, 2^128 after the largest.
double next_value(std::uint16_t code) {
  if (code + 1 == infinity_code) return 0x1p128;
  return decode_by_definition(static_cast<std::uint16_t>(code + 1));
}

TEST(Bfloat16, DecodesAllCodes) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto code = static_cast<std::uint16_t>(bits);
    const float decoded = bfloat16_to_float(code);
    ASSERT_EQ(std::signbit(decoded), bits >= 0x8000) << bits;
    if ((bits & 0x7F80) != 0x7F80) {
      ASSERT_EQ(decoded, decode_by_definition(code)) << bits;
    } else if ((bits & 0x7F) == 0) {
      ASSERT_TRUE(std::isinf(decoded)) << bits;
    } else {
      ASSERT_TRUE(std::isnan(decoded)) << bits;
    }
  }
}

TEST(Bfloat16, RoundsToNearestAndTiesToEven) {
  for (std::uint16_t code = 0; code < infinity_code; ++code) {
    const double exact = decode_by_definition(code);
    const auto tie = static_cast<float>((exact + next_value(code)) / 2);
    const int even = code + code % 2;
    ASSERT_EQ(float_to_bfloat16(static_cast<float>(exact)), code);
    ASSERT_EQ(float_to_bfloat16(tie), even) << std::hexfloat << tie;
    ASSERT_EQ(float_to_bfloat16(-tie), even | 0x8000) << std::hexfloat << tie;
    ASSERT_EQ(float_to_bfloat16(std::nextafter(tie, 0.0f)), code) << std::hexfloat << tie;
    ASSERT_EQ(float_to_bfloat16(std::nextafter(tie, infinity)), code + 1) << std::hexfloat << tie;
  }
}

TEST(Bfloat16, RoundToBfloat16GivesTheNearestValue) {
  EXPECT_EQ(round_to_bfloat16(1.00390625f), 1.0f);       // halfway: to the even 1
  EXPECT_EQ(round_to_bfloat16(1.01171875f), 1.015625f);  // halfway: to the even 1 + 2/128
  EXPECT_EQ(round_to_bfloat16(3.14159274f), 3.140625f);
  EXPECT_EQ(round_to_bfloat16(-1e-3f), -0.00099945068359375f);
}

TEST(Bfloat16, KeepsInfinityNanAndTheSignOfZero) {
  EXPECT_EQ(float_to_bfloat16(infinity), 0x7F80);
  EXPECT_EQ(float_to_bfloat16(-infinity), 0xFF80);
  EXPECT_EQ(float_to_bfloat16(-0.0f), 0x8000);
  EXPECT_EQ(float_to_bfloat16(std::numeric_limits<float>::max()), 0x7F80);
  // Signalling NaNs whose payload lies in the bits that are dropped, or would carry into the sign.
  for (const std::uint32_t bits :
       {0x7F800001u, 0xFF800001u, 0x7FFFFFFFu, 0xFFFFFFFFu, 0x7FC00000u}) {
    const std::uint16_t code = float_to_bfloat16(std::bit_cast<float>(bits));
    EXPECT_TRUE(std::isnan(bfloat16_to_float(code))) << bits;
    EXPECT_EQ(code >> 15, bits >> 31) << bits;
  }
}

TEST(Bfloat16, RoundingUpGivesTheSmallestValueNotBelow) {
  for (std::uint16_t code = 0; code < infinity_code; ++code) {
    const auto exact = static_cast<float>(decode_by_definition(code));
    ASSERT_EQ(float_to_bfloat16_up(exact), code);
    ASSERT_EQ(float_to_bfloat16_up(std::nextafter(exact, infinity)), code + 1) << code;
    if (code > 0) {
      ASSERT_EQ(float_to_bfloat16_up(std::nextafter(exact, 0.0f)), code) << code;
    }
  }
}

}  // namespace
}  // namespace octet
