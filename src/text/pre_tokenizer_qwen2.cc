#include "text/pre_tokenizer_character.h"
#include "text/pre_tokenizer_patterns.h"

namespace octet {
namespace {

// What Llama 3, Qwen2 and Qwen3.5 have in common: they differ in how many numbers make a piece, and
// in whether marks count as letters.
template <typename Read>
std::size_t piece_end(Read read, std::string_view text, std::size_t begin, int most_numbers) {
  const std::size_t contraction = folded_contraction_end(text, begin);
  if (contraction != begin) return contraction;

  // [^\r\n\p{L}\p{N}]?\p{L}+
  PatternCharacter first = read(text, begin);
  if (first.kind == PatternClass::letter) {
    return run_end(read, text, first.next, PatternClass::letter);
  }
  if (first.kind == PatternClass::number) return numbers_end(text, begin, most_numbers);
  const PatternCharacter second = read(text, first.next);
  if (second.kind == PatternClass::letter && !is_newline(text, begin)) {
    return run_end(read, text, second.next, PatternClass::letter);
  }

  //  ?[^\s\p{L}\p{N}]+[\r\n]*
  if (text[begin] == ' ' && second.kind == PatternClass::symbol) first = second;
  if (first.kind == PatternClass::symbol) {
    std::size_t end = run_end(read, text, first.next, PatternClass::symbol);
    while (is_newline(text, end)) ++end;
    return end;
  }
  return newline_whitespace_end(text, begin);
}

}  // namespace

std::size_t llama3_piece_end(std::string_view text, std::size_t begin) {
  return piece_end(pattern_character, text, begin, 3);
}

std::size_t qwen2_piece_end(std::string_view text, std::size_t begin) {
  return piece_end(pattern_character, text, begin, 1);
}

std::size_t qwen35_piece_end(std::string_view text, std::size_t begin) {
  return piece_end(pattern_character_with_marks, text, begin, 1);
}

}  // namespace octet
