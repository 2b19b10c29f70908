// Finds the text of special tokens ("<|im_start|>") in a text.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace octet {

class SpecialTokenMatcher {
 public:
  // A longer text is refused where tokens are read: a search costs at most this much a byte.
  static constexpr std::size_t longest_text = 256;

  struct Token {
    std::string_view text;  // not empty, at most `longest_text` bytes; must outlive the matcher
    TokenId id;
  };
  struct Match {
    std::size_t begin;
    std::size_t end;
    TokenId id;
  };

  SpecialTokenMatcher() = default;
  explicit SpecialTokenMatcher(std::vector<Token> tokens);

  // The leftmost match at or after `begin`, and of those there the longest.
  std::optional<Match> find(std::string_view text, std::size_t begin) const;

 private:
  std::optional<Match> match_at(std::string_view text, std::size_t begin) const;

  std::vector<Token> tokens_;  // sorted by text
  std::array<bool, 256> begins_token_{};
};

}  // namespace octet
