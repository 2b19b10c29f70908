#include "files/gguf_directory.h"

#include <utility>

namespace octet {

std::string_view name_of(GgufValueType type) {
  switch (type) {
    case GgufValueType::uint8:
      return "u8";
    case GgufValueType::int8:
      return "i8";
    case GgufValueType::uint16:
      return "u16";
    case GgufValueType::int16:
      return "i16";
    case GgufValueType::uint32:
      return "u32";
    case GgufValueType::int32:
      return "i32";
    case GgufValueType::float32:
      return "f32";
    case GgufValueType::boolean:
      return "bool";
    case GgufValueType::string:
      return "string";
    case GgufValueType::array:
      return "array";
    case GgufValueType::uint64:
      return "u64";
    case GgufValueType::int64:
      return "i64";
    case GgufValueType::float64:
      return "f64";
  }
  return "unknown";
}

std::size_t size_of(GgufValueType type) {
  switch (type) {
    case GgufValueType::uint8:
    case GgufValueType::int8:
    case GgufValueType::boolean:
      return 1;
    case GgufValueType::uint16:
    case GgufValueType::int16:
      return 2;
    case GgufValueType::uint32:
    case GgufValueType::int32:
    case GgufValueType::float32:
      return 4;
    case GgufValueType::uint64:
    case GgufValueType::int64:
    case GgufValueType::float64:
      return 8;
    case GgufValueType::string:
    case GgufValueType::array:
      break;
  }
  return 0;
}

bool is_integer(GgufValueType type) {
  bool visited = false;
  constexpr std::byte zeros[sizeof(std::uint64_t)] = {};
  visit_integer(type, zeros, [&](auto) { visited = true; });
  return visited;
}

std::optional<std::uint64_t> read_unsigned(GgufValueType type, const std::byte* data) {
  std::optional<std::uint64_t> result;
  visit_integer(type, data, [&](auto value) {
    if (std::in_range<std::uint64_t>(value)) result = static_cast<std::uint64_t>(value);
  });
  return result;
}

}  // namespace octet
