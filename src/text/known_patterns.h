// The regular expressions of tokenizer.json files that octet has matchers for, as the files spell
// them.
#pragma once

#include <string_view>

#include "text/pre_tokenizer.h"

namespace octet {

// Nothing (nullptr) for a pattern that it does not know.
PreTokenizer::PieceEnd find_known_pattern(std::string_view pattern);

}  // namespace octet
