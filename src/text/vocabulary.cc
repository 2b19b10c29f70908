#include "text/vocabulary.h"

#include <limits>
#include <utility>

#include "core/error.h"
#include "core/utf8.h"

namespace octet {

Vocabulary::Vocabulary(std::vector<Token> tokens, std::string_view source, std::string_view list)
    : tokens_(std::move(tokens)) {
  if (tokens_.empty() || tokens_.size() > std::numeric_limits<TokenId>::max()) {
    throw_bad_input("{}: {} has {} entries, expected 1 to 2^31 - 1.", source, list, tokens_.size());
  }
  ids_.reserve(tokens_.size());
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const Token& token = tokens_[i];
    if (const auto offset = find_invalid_utf8(token.text)) {
      throw_bad_input("{}: {}[{}] is not valid UTF-8 from its byte {} on.", source, list, i,
                      *offset);
    }
    if (token.type == TokenType::unused && token.text.empty()) continue;
    const auto [earlier, is_new] = ids_.emplace(token.text, static_cast<TokenId>(i));
    if (!is_new) {
      throw_bad_input("{}: {}[{}] repeats the text of token {}.", source, list, i, earlier->second);
    }
  }
}

const Vocabulary::Token& Vocabulary::at(TokenId token) const {
  if (token < 0 || token >= size()) {
    throw_bad_input("token id {} is outside the vocabulary of {} tokens", token, tokens_.size());
  }
  return tokens_[static_cast<std::size_t>(token)];
}

std::optional<TokenId> Vocabulary::find(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace octet
