// bfloat16: the upper half of an IEEE binary32.
#pragma once

#include <bit>
#include <cstdint>

namespace octet {

inline float bfloat16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Rounds to nearest, ties to even. A NaN stays a NaN (quiet, sign and upper payload kept).
inline std::uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// The smallest bfloat16 that is not below a finite `value` >= 0: a scale rounded up never lets the
// largest element of its row saturate.
inline std::uint16_t float_to_bfloat16_up(float value) {
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + 0xFFFFu) >> 16);
}

inline float round_to_bfloat16(float value) { return bfloat16_to_float(float_to_bfloat16(value)); }

}  // namespace octet
