// UTF-8: what is valid, one character at a time, and what a stream of bytes has finished.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace octet {

// The first character, or the first thing that is none, of a non-empty run of bytes.
struct Utf8Part {
  enum class Kind : std::uint8_t {
    character,
    invalid,     // a maximal part of an ill-formed sequence (The Unicode Standard, section 3.9)
    unfinished,  // the text ends inside a sequence that is well formed so far
  };
  Kind kind;
  std::size_t bytes;  // at least 1
};
Utf8Part first_utf8_part(std::string_view bytes);

// Well-formed UTF-8 as Unicode defines it (table 3-7 of the standard): no overlong forms, no
// surrogates, nothing past U+10FFFF.
bool is_valid_utf8(std::string_view text);

// The offset of the first byte that does not belong to a character; nothing for valid UTF-8.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

// Whether a byte of valid UTF-8 begins a character.
inline bool is_utf8_lead(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

struct Character {
  char32_t code_point;
  std::size_t bytes;
};
// The character that begins at `position` of valid UTF-8; `position` must be the start of one.
Character character_at(std::string_view valid_text, std::size_t position);

void append_utf8(char32_t code_point, std::string& text);

// Moves the text that no further byte can change out of `pending`: whole characters, and U+FFFD for
// each maximal invalid part. Leaves the at most three bytes of an unfinished character.
std::string take_complete_utf8(std::string& pending);

// The same, but what is unfinished is invalid, as nothing follows. Leaves `pending` empty.
std::string take_all_utf8(std::string& pending);

}  // namespace octet
