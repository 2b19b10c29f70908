#include "text/pre_tokenizer_character.h"

namespace octet {

// The one character beyond ASCII that folds to a letter of these is U+017F, the long s.
std::size_t folded_contraction_end(std::string_view text, std::size_t begin) {
  if (begin >= text.size() || text[begin] != '\'') return begin;
  const auto lower = [&](std::size_t offset) {
    const char c = begin + offset < text.size() ? text[begin + offset] : '\0';
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = lower(1);
  const char second = lower(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
  if ((first == 'r' || first == 'v') && second == 'e') return begin + 3;
  if (first == 'l' && second == 'l') return begin + 3;
  constexpr std::string_view long_s = "\xC5\xBF";
  return text.substr(begin + 1, 2) == long_s ? begin + 3 : begin;
}

std::size_t newline_whitespace_end(std::string_view text, std::size_t begin) {
  std::size_t after_newline = begin;
  std::size_t last = begin;
  std::size_t end = begin;
  PatternCharacter character = pattern_character(text, begin);
  while (character.kind == PatternClass::whitespace) {
    last = end;
    end = character.next;
    if (is_newline(text, last)) after_newline = end;
    character = pattern_character(text, end);
  }
  if (after_newline != begin) return after_newline;
  return character.kind == PatternClass::end_of_text || last == begin ? end : last;
}

std::size_t numbers_end(std::string_view text, std::size_t begin, int limit) {
  std::size_t end = begin;
  for (int count = 0; count < limit; ++count) {
    const PatternCharacter character = pattern_character(text, end);
    if (character.kind != PatternClass::number) break;
    end = character.next;
  }
  return end;
}

}  // namespace octet
