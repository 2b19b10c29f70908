#include "text/pre_tokenizer_character.h"
#include "text/pre_tokenizer_patterns.h"

namespace octet {
namespace {

// 's|'t|'re|'ve|'m|'ll|'d at `begin`: its end, or `begin` if there is none.
std::size_t contraction_end(std::string_view text, std::size_t begin) {
  constexpr std::string_view contractions[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
  if (text[begin] != '\'') return begin;
  for (const std::string_view contraction : contractions) {
    if (text.substr(begin, contraction.size()) == contraction) return begin + contraction.size();
  }
  return begin;
}

// \s+(?!\S)|\s+ : a run of white space leaves its last character to the word that follows, unless
// it has no other.
template <typename Read>
std::size_t whitespace_end(Read read, std::string_view text, std::size_t begin) {
  std::size_t last = begin;
  std::size_t end = begin;
  PatternCharacter character = read(text, begin);
  while (character.kind == PatternClass::whitespace) {
    last = end;
    end = character.next;
    character = read(text, end);
  }
  return character.kind == PatternClass::end_of_text || last == begin ? end : last;
}

template <typename Read>
std::size_t piece_end(Read read, std::string_view text, std::size_t begin) {
  const std::size_t contraction = contraction_end(text, begin);
  if (contraction != begin) return contraction;
  PatternCharacter first = read(text, begin);
  if (text[begin] == ' ') {
    const PatternCharacter second = read(text, first.next);
    if (second.kind != PatternClass::end_of_text) first = second;
  }
  if (first.kind == PatternClass::whitespace) return whitespace_end(read, text, begin);
  return run_end(read, text, first.next, first.kind);
}

bool is_digit(char32_t code_point) {
  const CharacterClass kind = character_class(code_point);
  return kind == CharacterClass::number || kind == CharacterClass::newer_number;
}

// Numbers are split off before the pattern runs, so to the pattern the text ends before each.
PatternCharacter character_between_digits(std::string_view text, std::size_t position) {
  if (position < text.size() && is_digit(character_at(text, position).code_point)) {
    return {PatternClass::end_of_text, position};
  }
  return pattern_character(text, position);
}

}  // namespace

std::size_t gpt2_piece_end(std::string_view text, std::size_t begin) {
  return piece_end(pattern_character, text, begin);
}

std::size_t smollm_piece_end(std::string_view text, std::size_t begin) {
  const Character first = character_at(text, begin);
  if (is_digit(first.code_point)) return begin + first.bytes;
  return piece_end(character_between_digits, text, begin);
}

std::size_t single_digit_piece_end(std::string_view text, std::size_t begin) {
  const Character first = character_at(text, begin);
  return is_digit(first.code_point) ? begin + first.bytes : digits_piece_end(text, begin);
}

std::size_t digits_piece_end(std::string_view text, std::size_t begin) {
  const bool digits = is_digit(character_at(text, begin).code_point);
  std::size_t end = begin;
  while (end < text.size()) {
    const Character character = character_at(text, end);
    if (is_digit(character.code_point) != digits) break;
    end += character.bytes;
  }
  return end;
}

}  // namespace octet
