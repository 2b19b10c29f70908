// Which tokens end an answer.
#pragma once

#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace octet {

// The tokens that a file declares (end of text, of turn, of message), in that order, then those
// control tokens of the vocabulary whose spelling its family reserves for the end of a turn or of a
// text; each once. Files declare one id as a rule (Qwen2.5's <|im_end|>), while models also end
// with others (its <|endoftext|>). A spelling counts only as a control token: text cannot end an
// answer.
std::vector<TokenId> find_end_tokens(const Tokenizer& tokenizer, std::span<const TokenId> declared);

}  // namespace octet
