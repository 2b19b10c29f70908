// The matchers behind text/pre_tokenizer.h; PreTokenizer::piece_end is their contract.
#pragma once

#include <cstddef>
#include <string_view>

namespace octet {

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
std::size_t gpt2_piece_end(std::string_view text, std::size_t begin);

// Each number character on its own, and GPT-2's pattern on what lies between them.
std::size_t smollm_piece_end(std::string_view text, std::size_t begin);

// Each number character on its own, or each run of them (tokenizer.json's "Digits"), and what lies
// between.
std::size_t single_digit_piece_end(std::string_view text, std::size_t begin);
std::size_t digits_piece_end(std::string_view text, std::size_t begin);

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+
std::size_t llama3_piece_end(std::string_view text, std::size_t begin);

// The same with \p{N} for \p{N}{1,3}.
std::size_t qwen2_piece_end(std::string_view text, std::size_t begin);

// Qwen2's with [\p{L}\p{M}] for \p{L}, but for the class of what stands before a word.
std::size_t qwen35_piece_end(std::string_view text, std::size_t begin);

// [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|...)?
//   |[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|...)?
//   |\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
std::size_t o200k_piece_end(std::string_view text, std::size_t begin);

// [\p{Han}]+ first, then o200k's with no Han in its words, and without the slash.
std::size_t kimi_piece_end(std::string_view text, std::size_t begin);

}  // namespace octet
