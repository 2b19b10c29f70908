// The classes of characters that pre-tokenizer patterns ask about.
#pragma once

#include <cstdint>

#include "core/utf8.h"

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

// What a word is made of to the single_word flag of added tokens: letters, marks, decimal digits
// and connectors.
bool is_word_character(char32_t code_point);

}  // namespace octet
