#include "text/jinja/unicode.h"

#include <algorithm>

namespace octet::jinja {
namespace {

unsigned byte_at(std::string_view text, std::size_t offset) {
  return static_cast<unsigned char>(text[offset]);
}

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// Length of the well-formed character at `offset`, 0 if there is none.
std::size_t valid_character_bytes(std::string_view text, std::size_t offset) {
  const unsigned lead = byte_at(text, offset);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t length = character_bytes(text[offset]);
  if (offset + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(text[offset + i])) return 0;
  }
  // The second byte rules out overlong forms, surrogates and what lies beyond U+10FFFF.
  const unsigned second = byte_at(text, offset + 1);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
      (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return length;
}

}  // namespace

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = valid_character_bytes(text, i);
    if (length == 0) return i;
    i += length;
  }
  return std::nullopt;
}

char32_t decode_at(std::string_view text, std::size_t offset) {
  const unsigned lead = byte_at(text, offset);
  const std::size_t length = character_bytes(text[offset]);
  char32_t character = length == 1 ? lead : lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    character = character << 6 | (byte_at(text, offset + i) & 0x3Fu);
  }
  return character;
}

void append_utf8(std::string& out, char32_t character) {
  const auto byte = [&out](char32_t value) { out += static_cast<char>(value); };
  if (character < 0x80) {
    byte(character);
  } else if (character < 0x800) {
    byte(0xC0 | character >> 6);
    byte(0x80 | (character & 0x3F));
  } else if (character < 0x10000) {
    byte(0xE0 | character >> 12);
    byte(0x80 | (character >> 6 & 0x3F));
    byte(0x80 | (character & 0x3F));
  } else {
    byte(0xF0 | character >> 18);
    byte(0x80 | (character >> 12 & 0x3F));
    byte(0x80 | (character >> 6 & 0x3F));
    byte(0x80 | (character & 0x3F));
  }
}

std::size_t count_characters(std::string_view text) {
  return text.size() -
         static_cast<std::size_t>(std::count_if(text.begin(), text.end(), is_continuation));
}

std::size_t offset_of_character(std::string_view text, std::size_t index) {
  std::size_t offset = 0;
  while (index > 0 && offset < text.size()) {
    offset += character_bytes(text[offset]);
    --index;
  }
  return offset;
}

std::size_t previous_character(std::string_view text, std::size_t offset) {
  do {
    --offset;
  } while (offset > 0 && is_continuation(text[offset]));
  return offset;
}

bool is_python_space(char32_t character) {
  return (character >= 0x09 && character <= 0x0D) || (character >= 0x1C && character <= 0x20) ||
         character == 0x85 || character == 0xA0 || character == 0x1680 ||
         (character >= 0x2000 && character <= 0x200A) || character == 0x2028 ||
         character == 0x2029 || character == 0x202F || character == 0x205F || character == 0x3000;
}

bool is_python_line_end(char32_t character) {
  return (character >= 0x0A && character <= 0x0D) || (character >= 0x1C && character <= 0x1E) ||
         character == 0x85 || character == 0x2028 || character == 0x2029;
}

bool is_python_printable(char32_t character) {
  struct Range {
    char32_t first;
    char32_t last;
  };
  // Controls, separators other than the space, format characters, private use, noncharacters.
  static constexpr Range not_printable[] = {
      {0x00, 0x1F},       {0x7F, 0xA0},       {0xAD, 0xAD},       {0x600, 0x605},
      {0x61C, 0x61C},     {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x890, 0x891},
      {0x8E2, 0x8E2},     {0x1680, 0x1680},   {0x180E, 0x180E},   {0x2000, 0x200F},
      {0x2028, 0x202F},   {0x205F, 0x206F},   {0x3000, 0x3000},   {0xD800, 0xF8FF},
      {0xFEFF, 0xFEFF},   {0xFFF0, 0xFFFB},   {0xFFFE, 0xFFFF},   {0x110BD, 0x110BD},
      {0x110CD, 0x110CD}, {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A},
      {0x1FFFE, 0x1FFFF}, {0x2FFFE, 0x2FFFF}, {0x3FFFE, 0xE00FF}, {0xE01F0, 0x10FFFF},
  };
  return std::none_of(std::begin(not_printable), std::end(not_printable), [&](const Range& range) {
    return range.first <= character && character <= range.last;
  });
}

}  // namespace octet::jinja
