// Token by token decoding that never emits half a character.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace octet {

// One per answer. push() returns the text that is complete after this token; bytes of an unfinished
// UTF-8 character are held back until they are finished or proved wrong (then U+FFFD, one for each
// maximal invalid part, as Unicode's recommended practice and Python's decoder do).
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  std::string push(TokenId token);  // special tokens give no text
  std::string finish();             // what is still held back, as U+FFFD

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
};

}  // namespace octet
