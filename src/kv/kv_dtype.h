// The number formats that keys and values may be cached in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace octet {

enum class KvDtype : std::uint8_t { float32, float16, bfloat16, fp8, int8 };

constexpr std::size_t bytes_of(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::float32:
      return 4;
    case KvDtype::float16:
    case KvDtype::bfloat16:
      return 2;
    case KvDtype::fp8:
    case KvDtype::int8:
      return 1;
  }
  return 0;
}

constexpr bool is_eight_bit(KvDtype dtype) {
  return dtype == KvDtype::fp8 || dtype == KvDtype::int8;
}

// "float32", "float16", "bfloat16", "fp8" (e4m3), "int8".
std::string_view name_of(KvDtype dtype);

}  // namespace octet
