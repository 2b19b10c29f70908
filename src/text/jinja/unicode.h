// Offsets of characters and the character classes of Python's str, as far as templates need them.
#pragma once

#include <cstddef>
#include <string_view>

#include "core/utf8.h"

namespace octet::jinja {

// Bytes of the character that a lead byte starts. Everything below expects well-formed UTF-8.
inline std::size_t character_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
inline char32_t decode_at(std::string_view text, std::size_t offset) {
  return character_at(text, offset).code_point;
}

std::size_t count_characters(std::string_view text);
// Offset of the character with this index; text.size() for one past the end.
std::size_t offset_of_character(std::string_view text, std::size_t index);
// Start of the character that ends at `offset`, which is above 0.
std::size_t previous_character(std::string_view text, std::size_t offset);

bool is_python_space(char32_t character);     // str.isspace, the \s of re, str.strip()
bool is_python_line_end(char32_t character);  // str.splitlines
// What repr() prints as it is. Exact for ASCII and Latin-1; beyond, unassigned characters count as
// printable, since telling them apart needs the whole Unicode database.
bool is_python_printable(char32_t character);

}  // namespace octet::jinja
