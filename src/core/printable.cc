#include "core/printable.h"

#include <cstdint>
#include <iterator>

#include <fmt/format.h>

namespace octet {

namespace {

// The length of the well-formed UTF-8 sequence at the start of `text` (not empty), or 0.
std::size_t utf8_sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t index) { return static_cast<std::uint8_t>(text[index]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  std::size_t length = 0;
  // The second byte's range excludes overlong forms, surrogates and what lies past U+10FFFF.
  std::uint8_t low = 0x80;
  std::uint8_t high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  }
  if (length == 0 || text.size() < length) return 0;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t index = 2; index < length; ++index) {
    if ((byte(index) & 0xC0) != 0x80) return 0;
  }
  return length;
}

// C0, DEL and C1 (U+0080 to U+009F): the characters that steer a terminal.
bool is_control(std::string_view sequence) {
  const auto lead = static_cast<std::uint8_t>(sequence[0]);
  if (sequence.size() == 1) return lead < 0x20 || lead == 0x7F;
  return lead == 0xC2 && static_cast<std::uint8_t>(sequence[1]) < 0xA0;
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

namespace {

// Appends up to `max_bytes` of the text, escaped; gives what was taken.
std::size_t append_escaped(std::string_view text, std::size_t max_bytes, std::string* result) {
  std::size_t position = 0;
  while (position < text.size() && position < max_bytes) {
    const std::string_view rest = text.substr(position);
    const std::size_t length = utf8_sequence_length(rest);
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
