#include "text/jinja/unicode.h"

#include <algorithm>

namespace octet::jinja {
namespace {

bool is_continuation(char byte) { return !is_utf8_lead(byte); }

}  // namespace

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
