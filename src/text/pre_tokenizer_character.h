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

inline PatternClass pattern_class(CharacterClass kind) {
  if (is_letter(kind)) return PatternClass::letter;
  if (kind == CharacterClass::number) return PatternClass::number;
  return kind == CharacterClass::whitespace ? PatternClass::whitespace : PatternClass::symbol;
}

inline PatternCharacter pattern_character(std::string_view text, std::size_t position) {
  if (position >= text.size()) return {PatternClass::end_of_text, position};
  const Character character = character_at(text, position);
  return {pattern_class(character_class(character.code_point)), position + character.bytes};
}

// The same where marks count as letters: [\p{L}\p{M}].
inline PatternCharacter pattern_character_with_marks(std::string_view text, std::size_t position) {
  if (position >= text.size()) return {PatternClass::end_of_text, position};
  const Character character = character_at(text, position);
  const CharacterClass kind = character_class(character.code_point);
  const bool is_mark = kind == CharacterClass::mark;
  return {is_mark ? PatternClass::letter : pattern_class(kind), position + character.bytes};
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

inline bool is_newline(std::string_view text, std::size_t position) {
  return position < text.size() && (text[position] == '\r' || text[position] == '\n');
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d) at `begin`: its end, or `begin` if there is none.
std::size_t folded_contraction_end(std::string_view text, std::size_t begin);

// \s*[\r\n]+|\s+(?!\S)|\s+ : up to the last newline of the run; without one, a run leaves its last
// character to the word that follows, unless it has no other. `begin` is white space.
std::size_t newline_whitespace_end(std::string_view text, std::size_t begin);

// \p{N}{1,limit} at a number.
std::size_t numbers_end(std::string_view text, std::size_t begin, int limit);

}  // namespace octet
