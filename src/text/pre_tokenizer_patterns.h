// The matchers behind text/pre_tokenizer.h; PreTokenizer::piece_end is their contract.
#pragma once

#include <cstddef>
#include <string_view>

namespace octet {

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
std::size_t gpt2_piece_end(std::string_view text, std::size_t begin);

// Each number character on its own, and GPT-2's pattern on what lies between them.
std::size_t smollm_piece_end(std::string_view text, std::size_t begin);

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+
std::size_t qwen2_piece_end(std::string_view text, std::size_t begin);

}  // namespace octet
