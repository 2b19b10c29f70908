// Offsets of characters, and what Python's str knows of each.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/utf8.h"
#include "text/jinja/character_tables.h"

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

bool has_flag(char32_t character, CharacterFlag flag);

// Appends what the character maps to; false, and nothing appended, where that is itself.
bool append_mapped(char32_t character, CaseMapping mapping, std::string& out);

}  // namespace octet::jinja
