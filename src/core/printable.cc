#include "core/printable.h"

#include <cstdint>
#include <iterator>

#include <fmt/format.h>

namespace octet {

namespace {

// The length of the character at the start of `text` (not empty), or 0 where there is none.
std::size_t character_length(std::string_view text) {
  const Utf8Part part = first_utf8_part(text);
  return part.kind == Utf8Part::Kind::character ? part.bytes : 0;
}

// C0, DEL and C1 (U+0080 to U+009F): the characters that steer a terminal.
bool is_control(std::string_view sequence) {
  const auto lead = static_cast<std::uint8_t>(sequence[0]);
  if (sequence.size() == 1) return lead < 0x20 || lead == 0x7F;
  return lead == 0xC2 && static_cast<std::uint8_t>(sequence[1]) < 0xA0;
}

// Appends up to `max_bytes` of the text, escaped; gives what was taken.
std::size_t append_escaped(std::string_view text, std::size_t max_bytes, std::string* result) {
  std::size_t position = 0;
  while (position < text.size() && position < max_bytes) {
    const std::string_view rest = text.substr(position);
    const std::size_t length = character_length(rest);
    if (length == 0 || is_control(rest.substr(0, length))) {
      fmt::format_to(std::back_inserter(*result), "\\x{:02x}",
                     static_cast<std::uint8_t>(text[position]));
      ++position;
      continue;
    }
    *result += rest.substr(0, length);
    position += length;
  }
  return position;
}

}  // namespace

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string result = "'";
  const std::size_t taken = append_escaped(text, max_bytes, &result);
  result += "'";
  if (taken < text.size()) {
    fmt::format_to(std::back_inserter(result), " (and {} bytes more)", text.size() - taken);
  }
  return result;
}

std::string single_line(std::string_view text) {
  std::string result;
  append_escaped(text, text.size(), &result);
  return result;
}

}  // namespace octet
