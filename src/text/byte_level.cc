#include "text/byte_level.h"

#include <array>

#include "text/unicode.h"

namespace octet {
namespace {

struct Alphabet {
  std::array<char32_t, 256> characters{};
  std::array<int, 0x144> bytes{};  // by code point; -1: none

  Alphabet() {
    bytes.fill(-1);
    char32_t next_stand_in = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      const char32_t character = printable ? static_cast<char32_t>(byte) : next_stand_in++;
      characters[static_cast<std::size_t>(byte)] = character;
      bytes[character] = byte;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

char32_t byte_level_character(std::uint8_t byte) { return alphabet().characters[byte]; }

std::optional<std::string> byte_level_bytes(std::string_view token) {
  const auto& bytes = alphabet().bytes;
  std::string result;
  for (std::size_t position = 0; position < token.size();) {
    const Character character = character_at(token, position);
    if (character.code_point >= bytes.size() || bytes[character.code_point] < 0) {
      return std::nullopt;
    }
    result += static_cast<char>(bytes[character.code_point]);
    position += character.bytes;
  }
  return result;
}

}  // namespace octet
