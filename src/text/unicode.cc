#include "text/unicode.h"

#include <algorithm>
#include <array>

#include "text/unicode_tables.h"

namespace octet {
namespace {

CharacterClass search_class(char32_t code_point) {
  const auto runs = character_class_runs();
  // The last run that begins at or before the code point: every class is below 16.
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), std::uint32_t{code_point} * 16 + 15);
  return static_cast<CharacterClass>(*(after - 1) & 15);
}

// The characters below U+0800, which one or two bytes spell: where most alphabets lie.
constexpr char32_t table_end = 0x800;

std::array<CharacterClass, table_end> first_classes() {
  std::array<CharacterClass, table_end> classes{};
  for (char32_t c = 0; c < table_end; ++c) classes[c] = search_class(c);
  return classes;
}

bool is_in(std::span<const CodePointRange> ranges, char32_t code_point) {
  const auto after = std::upper_bound(
      ranges.begin(), ranges.end(), code_point,
      [](char32_t value, const CodePointRange& range) { return value < range.first; });
  return after != ranges.begin() && code_point <= (after - 1)->last;
}

}  // namespace

CharacterClass character_class(char32_t code_point) {
  static const std::array<CharacterClass, table_end> table = first_classes();
  return code_point < table_end ? table[code_point] : search_class(code_point);
}

bool is_han(char32_t code_point) {
  // U+2E80 begins the first of its blocks.
  return code_point >= 0x2E80 && is_in(han_ranges(), code_point);
}

bool is_word_character(char32_t code_point) { return is_in(word_ranges(), code_point); }

}  // namespace octet
