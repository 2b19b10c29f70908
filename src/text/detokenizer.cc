#include "text/detokenizer.h"

#include "text/unicode.h"

namespace octet {

std::string Detokenizer::push(TokenId token) {
  if (tokenizer_->is_special(token)) return {};
  pending_ += tokenizer_->token_bytes(token);
  return take_complete_utf8(pending_);
}

std::string Detokenizer::finish() { return take_all_utf8(pending_); }

}  // namespace octet
