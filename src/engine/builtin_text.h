// The text that key means are taken over.
#pragma once

#include <string_view>

namespace octet {

// Prose, code, numbers and several scripts in turn, well over 500 tokens of any tokenizer. A change
// of it changes the means, and the answers of 8-bit caches with them.
std::string_view builtin_text();

}  // namespace octet
