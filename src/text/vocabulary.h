// The tokens of a model: how each is spelled, which bytes it stands for and what it is for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer.h"

namespace octet {

// GGUF's numbers for "tokenizer.ggml.token_type".
enum class TokenType : std::uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

// Control and unknown tokens: never part of an answer's text.
inline bool is_special_type(TokenType type) {
  return type == TokenType::control || type == TokenType::unknown;
}

// Tokens that are matched in the raw text, before it is split; they are spelled as they read.
inline bool is_added_type(TokenType type) {
  return is_special_type(type) || type == TokenType::user_defined;
}

class Vocabulary {
 public:
  struct Token {
    std::string text;   // as the vocabulary spells it
    std::string bytes;  // what it stands for
    TokenType type = TokenType::normal;
  };

  Vocabulary() = default;
  // `list` names the tokens for errors ("tokenizer.ggml.tokens"). Throws Error{bad_input} that
  // names source, list and index for a text that is not UTF-8 or occurs twice, and for no or more
  // than 2^31 - 1 tokens. An unused token without a text is a gap between ids: it is never found.
  Vocabulary(std::vector<Token> tokens, std::string_view source, std::string_view list);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  TokenId size() const { return static_cast<TokenId>(tokens_.size()); }
  // Throws Error{bad_input} for an id outside the vocabulary.
  const Token& at(TokenId token) const;
  std::optional<TokenId> find(std::string_view text) const;

 private:
  std::vector<Token> tokens_;
  std::unordered_map<std::string_view, TokenId> ids_;  // the keys are views of tokens_
};

}  // namespace octet
