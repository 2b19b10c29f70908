// The directory of a GGUF file: what its header, metadata and tensor records say, checked.
// GgufFile (files/gguf.h) is the interface to it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_view.h"
#include "files/name_index.h"

namespace octet {

// Numbered as in the file.
enum class GgufValueType : std::uint32_t {
  uint8 = 0,
  int8 = 1,
  uint16 = 2,
  int16 = 3,
  uint32 = 4,
  int32 = 5,
  float32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  uint64 = 10,
  int64 = 11,
  float64 = 12,
};

// "u8", "string", ...; "unknown" for a number that is none of the above.
std::string_view name_of(GgufValueType type);

// Bytes of a value of fixed size; 0 for strings, arrays and unknown types.
std::size_t size_of(GgufValueType type);

// One metadata entry. `data` points into the file: at the value, at a string's length or, for an
// array, at its first element; all that lies there has been checked.
struct GgufEntry {
  std::string_view key;
  GgufValueType type = GgufValueType::uint8;
  GgufValueType element_type = GgufValueType::uint8;  // of an array; else the same as `type`
  std::uint64_t count = 1;                            // elements of an array; else 1
  const std::byte* data = nullptr;
};

// Views into the bytes of the file, which must outlive it.
struct GgufDirectory {
  std::vector<GgufEntry> entries;
  NameIndex entry_index;
  std::vector<TensorView> tensors;
  NameIndex tensor_index;
};

// `file` names the file in errors. Throws as GgufFile::open does.
GgufDirectory parse_gguf(std::span<const std::byte> bytes, const std::string& file);

// The little-endian value at `data`, which need not be aligned.
static_assert(std::endian::native == std::endian::little, "GGUF is read as it lies in memory");
template <typename T>
T load_unaligned(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

bool is_integer(GgufValueType type);

// Calls visitor(value) with the value at `data` in its own C++ type, where `type` is an integer
// type.
template <typename Visitor>
void visit_integer(GgufValueType type, const std::byte* data, Visitor&& visitor) {
  switch (type) {
    case GgufValueType::uint8:
      return visitor(load_unaligned<std::uint8_t>(data));
    case GgufValueType::int8:
      return visitor(load_unaligned<std::int8_t>(data));
    case GgufValueType::uint16:
      return visitor(load_unaligned<std::uint16_t>(data));
    case GgufValueType::int16:
      return visitor(load_unaligned<std::int16_t>(data));
    case GgufValueType::uint32:
      return visitor(load_unaligned<std::uint32_t>(data));
    case GgufValueType::int32:
      return visitor(load_unaligned<std::int32_t>(data));
    case GgufValueType::uint64:
      return visitor(load_unaligned<std::uint64_t>(data));
    case GgufValueType::int64:
      return visitor(load_unaligned<std::int64_t>(data));
    default:
      return;
  }
}

// An integer that is not negative; nothing for any other value or type.
std::optional<std::uint64_t> read_unsigned(GgufValueType type, const std::byte* data);

}  // namespace octet
