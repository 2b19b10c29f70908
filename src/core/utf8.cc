#include "core/utf8.h"

namespace octet {
namespace {

constexpr std::string_view replacement_character = "\xEF\xBF\xBD";  // U+FFFD

// Moves `bytes` into text with invalid parts replaced; stops before an unfinished one if `keep`.
std::size_t append_replaced(std::string_view bytes, bool keep_unfinished, std::string& text) {
  std::size_t position = 0;
  while (position < bytes.size()) {
    const Utf8Part part = first_utf8_part(bytes.substr(position));
    if (part.kind == Utf8Part::Kind::unfinished && keep_unfinished) break;
    text += part.kind == Utf8Part::Kind::character ? bytes.substr(position, part.bytes)
                                                   : replacement_character;
    position += part.bytes;
  }
  return position;
}

}  // namespace

Utf8Part first_utf8_part(std::string_view bytes) {
  using Kind = Utf8Part::Kind;
  const auto lead = static_cast<unsigned char>(bytes[0]);
  if (lead < 0x80) return {Kind::character, 1};
  // Table 3-7 of The Unicode Standard: the lead byte limits the second one, so that overlong forms,
  // surrogates and code points beyond U+10FFFF are ill-formed at their first wrong byte.
  std::size_t length = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
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
  } else {
    return {Kind::invalid, 1};
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Kind::unfinished, i};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (byte < low || byte > high) return {Kind::invalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Kind::character, length};
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  std::size_t position = 0;
  while (position < text.size()) {
    const Utf8Part part = first_utf8_part(text.substr(position));
    if (part.kind != Utf8Part::Kind::character) return position;
    position += part.bytes;
  }
  return std::nullopt;
}

bool is_valid_utf8(std::string_view text) { return !find_invalid_utf8(text); }

Character character_at(std::string_view valid_text, std::size_t position) {
  const auto byte = [&](std::size_t i) -> char32_t {
    return static_cast<unsigned char>(valid_text[position + i]);
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

void append_utf8(char32_t code_point, std::string& text) {
  const auto append = [&](char32_t byte) { text += static_cast<char>(byte); };
  const auto append_tail = [&](int shift) { append(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) {
    append(code_point);
  } else if (code_point < 0x800) {
    append(0xC0 | code_point >> 6);
    append_tail(0);
  } else if (code_point < 0x10000) {
    append(0xE0 | code_point >> 12);
    append_tail(6);
    append_tail(0);
  } else {
    append(0xF0 | code_point >> 18);
    append_tail(12);
    append_tail(6);
    append_tail(0);
  }
}

std::string take_complete_utf8(std::string& pending) {
  std::string text;
  pending.erase(0, append_replaced(pending, true, text));
  return text;
}

std::string take_all_utf8(std::string& pending) {
  std::string text;
  append_replaced(pending, false, text);
  pending.clear();
  return text;
}

}  // namespace octet
