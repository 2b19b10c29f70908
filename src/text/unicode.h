// UTF-8 and the classes of characters that pre-tokenizer patterns ask about.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace octet {

// The classes that the `tokenizers` package sees (tools/unicode_tables.py states the versions).
enum class CharacterClass : std::uint8_t {
  other,
  letter,        // \p{L} of Unicode 16
  number,        // \p{N} of Unicode 16
  newer_number,  // \p{N} since Unicode 17: nothing to its regular expressions, a number to its
                 // digit splitter
  whitespace,    // \s: White_Space
};

CharacterClass character_class(char32_t code_point);

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

// The offset of the first byte that does not belong to a character; nothing for valid UTF-8.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

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
