#include "core/float8_e4m3.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "core/bfloat16.h"

namespace octet {
namespace {

constexpr int nan_magnitude = 0x7F;
constexpr int largest_magnitude = 0x7E;

// What the specification says that a code's magnitude (7 bits, not NaN) is worth.
double magnitude_value(int magnitude) {
  const int exponent = magnitude >> 3;
  const int mantissa = magnitude & 7;
  if (exponent == 0) return std::ldexp(mantissa, -9);
  return std::ldexp(8 + mantissa, exponent - 10);
}

// The code of the nearest value, found by trying all; of two equally near the even code. Values
// past the largest take it.
std::uint8_t encode_by_search(float value) {
  const int sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return static_cast<std::uint8_t>(sign | nan_magnitude);
  if (std::isinf(value)) return static_cast<std::uint8_t>(sign | largest_magnitude);
  const double target = std::fabs(static_cast<double>(value));
  int best = 0;
  for (int magnitude = 1; magnitude <= largest_magnitude; ++magnitude) {
    const double distance = std::fabs(magnitude_value(magnitude) - target);
    const double best_distance = std::fabs(magnitude_value(best) - target);
    if (distance < best_distance || (distance == best_distance && magnitude % 2 == 0)) {
      best = magnitude;
    }
  }
  return static_cast<std::uint8_t>(sign | best);
}

TEST(Float8E4m3, DecodesAllCodes) {
  for (int code = 0; code < 256; ++code) {
    const float decoded = float8_e4m3_to_float(static_cast<std::uint8_t>(code));
    EXPECT_EQ(std::signbit(decoded), code >= 128) << "code " << code;
    if ((code & 0x7F) == nan_magnitude) {
      EXPECT_TRUE(std::isnan(decoded)) << "code " << code;
    } else {
      EXPECT_EQ(std::fabs(decoded), magnitude_value(code & 0x7F)) << "code " << code;
    }
  }
}

TEST(Float8E4m3, DecodesTheValuesThatTheSpecificationNames) {
  EXPECT_EQ(float8_e4m3_to_float(0x7E), 448.0f);
  EXPECT_EQ(float8_e4m3_to_float(0x08), 0x1p-6f);  // smallest normal
  EXPECT_EQ(float8_e4m3_to_float(0x07), 0.875f * 0x1p-6f);
  EXPECT_EQ(float8_e4m3_to_float(0x01), 0x1p-9f);
  EXPECT_EQ(float8_e4m3_to_float(0x38), 1.0f);
  EXPECT_EQ(float8_e4m3_to_float(0xC1), -2.25f);
}

TEST(Float8E4m3, EncodesEveryBfloat16) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bfloat16_to_float(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(float_to_float8_e4m3(value), encode_by_search(value))
        << "bfloat16 " << bits << ", value " << value;
  }
}

TEST(Float8E4m3, EncodesTheNeighbourhoodOfEveryTie) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (int magnitude = 0; magnitude < largest_magnitude; ++magnitude) {
    const auto tie =
        static_cast<float>((magnitude_value(magnitude) + magnitude_value(magnitude + 1)) / 2);
    const int even = magnitude + magnitude % 2;
    EXPECT_EQ(float_to_float8_e4m3(tie), even) << tie;
    EXPECT_EQ(float_to_float8_e4m3(-tie), even | 0x80) << -tie;
    EXPECT_EQ(float_to_float8_e4m3(std::nextafter(tie, 0.0f)), magnitude) << tie;
    EXPECT_EQ(float_to_float8_e4m3(std::nextafter(tie, infinity)), magnitude + 1) << tie;
  }
}

TEST(Float8E4m3, SaturatesInsteadOfOverflowing) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float value :
       {448.0f, 464.0f, 465.0f, 480.0f, 1e30f, std::numeric_limits<float>::max(), infinity}) {
    EXPECT_EQ(float_to_float8_e4m3(value), 0x7E) << value;
    EXPECT_EQ(float_to_float8_e4m3(-value), 0xFE) << value;
  }
}

TEST(Float8E4m3, KeepsNanAndTheSignOfZero) {
  EXPECT_EQ(float_to_float8_e4m3(std::numeric_limits<float>::quiet_NaN()), 0x7F);
  EXPECT_EQ(float_to_float8_e4m3(std::bit_cast<float>(0xFF800001u)), 0xFF);  // signalling, negative
  EXPECT_EQ(float_to_float8_e4m3(-0.0f), 0x80);
  EXPECT_EQ(float_to_float8_e4m3(std::numeric_limits<float>::denorm_min()), 0x00);
}

TEST(Float8E4m3, EveryCodeSurvivesTheRoundTrip) {
  for (int code = 0; code < 256; ++code) {
    EXPECT_EQ(float_to_float8_e4m3(float8_e4m3_to_float(static_cast<std::uint8_t>(code))), code);
  }
}

}  // namespace
}  // namespace octet
