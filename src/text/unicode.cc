#include "text/unicode.h"

#include <algorithm>
#include <array>

#include "text/unicode_tables.h"

namespace octet {
namespace {

CharacterClass search_class(char32_t code_point) {
  const auto runs = character_class_runs();
  // The last run that begins at or before the code point: every class is below 8.
  const auto after = std::upper_bound(runs.begin(), runs.end(), std::uint32_t{code_point} * 8 + 7);
  return static_cast<CharacterClass>(*(after - 1) & 7);
}

std::array<CharacterClass, 128> ascii_classes() {
  std::array<CharacterClass, 128> classes{};
  for (char32_t c = 0; c < 128; ++c) classes[c] = search_class(c);
  return classes;
}

}  // namespace

CharacterClass character_class(char32_t code_point) {
  static const std::array<CharacterClass, 128> ascii = ascii_classes();
  return code_point < 128 ? ascii[code_point] : search_class(code_point);
}

bool is_word_character(char32_t code_point) {
  switch (character_class(code_point)) {
    case CharacterClass::letter:
    case CharacterClass::number:
      return true;
    default:
      return code_point == '_';
  }
}

}  // namespace octet
