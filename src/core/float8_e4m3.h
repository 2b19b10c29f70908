// FP8 e4m3 ("e4m3fn" of the OCP 8-bit floating point specification): 1 sign, 4 exponent (bias 7)
// and 3 mantissa bits; largest value 448, no infinity, NaN is 0x7F and 0xFF, smallest subnormal
// 2^-9.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace octet {

inline constexpr float float8_e4m3_max = 448.0f;

// Exact for every code; 0x7F and 0xFF give NaN.
inline float float8_e4m3_to_float(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
  const std::uint32_t magnitude = code & 0x7Fu;
  if (magnitude == 0x7Fu) return std::bit_cast<float>(sign | 0x7FC00000u);
  const float scaled = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
}

// Rounds to nearest, ties to even, saturating at 448 (infinities too). A NaN stays a NaN.
inline std::uint8_t float_to_float8_e4m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint8_t>(sign | 0x7Fu);
  if (magnitude >= std::bit_cast<std::uint32_t>(float8_e4m3_max)) {
    return static_cast<std::uint8_t>(sign | 0x7Eu);
  }
  if (magnitude < std::bit_cast<std::uint32_t>(0x1p-6f)) {
    // Subnormal result, in units of 2^-9: adding 2^14 puts the sum's last bit there.
    const float aligned = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<std::uint8_t>(
        sign | (std::bit_cast<std::uint32_t>(aligned) - std::bit_cast<std::uint32_t>(0x1p14f)));
  }
  const std::uint32_t rounded = magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u);
  return static_cast<std::uint8_t>(sign | ((rounded - (120u << 23)) >> 20));
}

}  // namespace octet
