#include "text/pre_tokenizer_character.h"
#include "text/pre_tokenizer_patterns.h"

namespace octet {
namespace {

bool is_newline(std::string_view text, std::size_t position) {
  return position < text.size() && (text[position] == '\r' || text[position] == '\n');
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d) at `begin`: its end, or `begin` if there is none. The one character
// beyond ASCII that folds to a letter of these is U+017F, the long s.
std::size_t contraction_end(std::string_view text, std::size_t begin) {
  if (text[begin] != '\'') return begin;
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

// \s*[\r\n]+|\s+(?!\S)|\s+ : up to the last newline of the run; without one, a run leaves its last
// character to the word that follows, unless it has no other.
std::size_t whitespace_end(std::string_view text, std::size_t begin) {
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

}  // namespace

std::size_t qwen2_piece_end(std::string_view text, std::size_t begin) {
  const std::size_t contraction = contraction_end(text, begin);
  if (contraction != begin) return contraction;

  // [^\r\n\p{L}\p{N}]?\p{L}+
  PatternCharacter first = pattern_character(text, begin);
  if (first.kind == PatternClass::letter) {
    return run_end(pattern_character, text, first.next, PatternClass::letter);
  }
  if (first.kind == PatternClass::number) return first.next;
  const PatternCharacter second = pattern_character(text, first.next);
  if (second.kind == PatternClass::letter && !is_newline(text, begin)) {
    return run_end(pattern_character, text, second.next, PatternClass::letter);
  }

  //  ?[^\s\p{L}\p{N}]+[\r\n]*
  if (text[begin] == ' ' && second.kind == PatternClass::symbol) first = second;
  if (first.kind == PatternClass::symbol) {
    std::size_t end = run_end(pattern_character, text, first.next, PatternClass::symbol);
    while (is_newline(text, end)) ++end;
    return end;
  }
  return whitespace_end(text, begin);
}

}  // namespace octet
