// The classes of characters that pre-tokenizer patterns ask about.
#pragma once

#include <cstdint>

#include "core/utf8.h"

namespace octet {

// The classes that the `tokenizers` package sees (tools/character_classes.py asks it).
enum class CharacterClass : std::uint8_t {
  other,
  uppercase,        // \p{Lu} of Unicode 16, as those below
  lowercase,        // \p{Ll}
  titlecase,        // \p{Lt}
  modifier_letter,  // \p{Lm}
  other_letter,     // \p{Lo}
  mark,             // \p{M}
  number,           // \p{N}
  newer_number,     // \p{N} since Unicode 17: nothing to its regular expressions, a number to its
                    // digit splitter
  whitespace,       // \s: White_Space
};

inline bool is_letter(CharacterClass kind) {
  return kind >= CharacterClass::uppercase && kind <= CharacterClass::other_letter;
}

CharacterClass character_class(char32_t code_point);

bool is_han(char32_t code_point);  // \p{Han}

// What a word is made of to the single_word flag of added tokens: letters, marks, decimal digits
// and connectors.
bool is_word_character(char32_t code_point);

}  // namespace octet
