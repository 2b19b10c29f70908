#include "text/tokenizer.h"

#include "core/utf8.h"
#include "text/detokenizer.h"

namespace octet {

std::string Tokenizer::decode(const std::vector<TokenId>& tokens, bool with_special) const {
  std::string bytes;
  std::string text;
  if (with_special) {
    for (const TokenId token : tokens) bytes += token_bytes(token);
    text = take_all_utf8(bytes);
  } else {
    Detokenizer detokenizer(*this);
    for (const TokenId token : tokens) text += detokenizer.push(token);
    text += detokenizer.finish();
  }
  if (strips_leading_space() && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

}  // namespace octet
