#include "text/tokenizer.h"

#include "text/detokenizer.h"
#include "text/unicode.h"

namespace octet {

std::string Tokenizer::decode(const std::vector<TokenId>& tokens, bool with_special) const {
  std::string text;
  if (with_special) {
    std::string bytes;
    for (const TokenId token : tokens) bytes += token_bytes(token);
    return take_all_utf8(bytes);
  }
  Detokenizer detokenizer(*this);
  for (const TokenId token : tokens) text += detokenizer.push(token);
  return text + detokenizer.finish();
}

}  // namespace octet
