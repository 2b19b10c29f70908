#include "text/pre_tokenizer_character.h"
#include "text/pre_tokenizer_patterns.h"

namespace octet {
namespace {

// The classes of the two word patterns. What is in both is where a greedy run has to give back.
struct WordCharacter {
  bool upper = false;  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  bool lower = false;  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
  std::size_t next = 0;
};

WordCharacter word_character(std::string_view text, std::size_t position, bool without_han) {
  if (position >= text.size()) return {};
  const Character character = character_at(text, position);
  WordCharacter result;
  result.next = position + character.bytes;
  if (without_han && is_han(character.code_point)) return result;
  switch (character_class(character.code_point)) {
    case CharacterClass::uppercase:
    case CharacterClass::titlecase:
      result.upper = true;
      break;
    case CharacterClass::lowercase:
      result.lower = true;
      break;
    case CharacterClass::modifier_letter:
    case CharacterClass::other_letter:
    case CharacterClass::mark:
      result.upper = result.lower = true;
      break;
    default:
      break;
  }
  return result;
}

struct Words {
  std::size_t upper_then_lower;  // the end of [upper]*[lower]+, or 0
  std::size_t upper;             // the end of [upper]+, or 0
};

// Both word patterns at `begin`, without what may stand before a word. The greedy run of upper-case
// characters takes all; [lower]+ then needs one more, or gets the last of the run that is in both.
Words words_at(std::string_view text, std::size_t begin, bool without_han) {
  std::size_t end = begin;
  std::size_t after_last_lower = 0;
  WordCharacter character = word_character(text, end, without_han);
  while (character.upper) {
    end = character.next;
    if (character.lower) after_last_lower = end;
    character = word_character(text, end, without_han);
  }
  const std::size_t upper = end == begin ? 0 : end;
  if (!character.lower) return {after_last_lower, upper};
  while (character.lower) {
    end = character.next;
    character = word_character(text, end, without_han);
  }
  return {end, upper};
}

// [^\r\n\p{L}\p{N}]?[upper]*[lower]+ and then [^\r\n\p{L}\p{N}]?[upper]+[lower]* : the end, or
// `begin` if neither matches. Where [upper]+ matches and the first pattern did not, no [lower] is
// left to follow it.
std::size_t word_end(std::string_view text, std::size_t begin, bool without_han) {
  const PatternCharacter first = pattern_character(text, begin);
  const bool may_stand_before = first.kind != PatternClass::letter &&
                                first.kind != PatternClass::number && !is_newline(text, begin);
  const Words behind = may_stand_before ? words_at(text, first.next, without_han) : Words{0, 0};
  if (behind.upper_then_lower != 0) return behind.upper_then_lower;
  const Words here = words_at(text, begin, without_han);
  if (here.upper_then_lower != 0) return here.upper_then_lower;
  if (behind.upper != 0) return behind.upper;
  return here.upper != 0 ? here.upper : begin;
}

std::size_t piece_end(std::string_view text, std::size_t begin, bool without_han) {
  const std::size_t word = word_end(text, begin, without_han);
  if (word != begin) return folded_contraction_end(text, word);
  PatternCharacter first = pattern_character(text, begin);
  if (first.kind == PatternClass::number) return numbers_end(text, begin, 3);
  //  ?[^\s\p{L}\p{N}]+[\r\n/]*, without the slash for Kimi
  if (text[begin] == ' ') {
    const PatternCharacter second = pattern_character(text, first.next);
    if (second.kind == PatternClass::symbol) first = second;
  }
  if (first.kind == PatternClass::symbol) {
    std::size_t end = run_end(pattern_character, text, first.next, PatternClass::symbol);
    while (is_newline(text, end) || (!without_han && end < text.size() && text[end] == '/')) ++end;
    return end;
  }
  return newline_whitespace_end(text, begin);
}

}  // namespace

std::size_t o200k_piece_end(std::string_view text, std::size_t begin) {
  return piece_end(text, begin, false);
}

std::size_t kimi_piece_end(std::string_view text, std::size_t begin) {
  std::size_t end = begin;
  while (end < text.size()) {
    const Character character = character_at(text, end);
    if (!is_han(character.code_point)) break;
    end += character.bytes;
  }
  return end != begin ? end : piece_end(text, begin, true);
}

}  // namespace octet
