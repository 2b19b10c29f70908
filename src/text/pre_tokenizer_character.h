// What the pattern matchers see of a text: one character's class at a time.
#pragma once

#include <cstddef>
#include <string_view>

#include "text/unicode.h"

namespace octet {

enum class PatternClass : std::uint8_t {
  end_of_text,
  letter,
  number,
  whitespace,
  symbol,  // [^\s\p{L}\p{N}]
};

struct PatternCharacter {
  PatternClass kind;
  std::size_t next;  // where the character after it begins
};

inline PatternCharacter pattern_character(std::string_view text, std::size_t position) {
  if (position >= text.size()) return {PatternClass::end_of_text, position};
  const Character character = character_at(text, position);
  const std::size_t next = position + character.bytes;
  switch (character_class(character.code_point)) {
    case CharacterClass::letter:
      return {PatternClass::letter, next};
    case CharacterClass::number:
      return {PatternClass::number, next};
    case CharacterClass::whitespace:
      return {PatternClass::whitespace, next};
    case CharacterClass::newer_number:
    case CharacterClass::other:
      break;
  }
  return {PatternClass::symbol, next};
}

// The end of the run of `kind` that begins at `position`, perhaps an empty one. `read` is
// pattern_character or a variation of it.
template <typename Read>
std::size_t run_end(Read read, std::string_view text, std::size_t position, PatternClass kind) {
  for (;;) {
    const PatternCharacter character = read(text, position);
    if (character.kind != kind) return position;
    position = character.next;
  }
}

}  // namespace octet
