// What a chat template renders and a tokenizer encodes.
#pragma once

#include <string>

namespace octet {

// A piece of a rendered prompt. Text that came from a message is `literal`: special-token text in
// it must not become special tokens. Text that the template wrote is not.
struct PromptPiece {
  std::string text;
  bool literal = false;
};

}  // namespace octet
