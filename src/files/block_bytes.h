// How the block decoders read bytes. Internal: for src/files/block_*.cc alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/float16.h"

namespace octet {

inline std::uint8_t byte_at(const std::byte* data, int index) {
  return std::to_integer<std::uint8_t>(data[index]);
}
inline std::int8_t signed_byte_at(const std::byte* data, int index) {
  return static_cast<std::int8_t>(byte_at(data, index));
}
template <typename T>
T load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}
inline float float16_at(const std::byte* data) {
  return float16_to_float(load<std::uint16_t>(data));
}

// The nibble pair of byte j is the elements j and j + 16 of a block of 32.
inline int low_nibble(const std::byte* quants, int index) { return byte_at(quants, index) & 15; }
inline int high_nibble(const std::byte* quants, int index) { return byte_at(quants, index) >> 4; }

}  // namespace octet
