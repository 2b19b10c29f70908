// Splits a text into the pieces that byte pair encoding works on, one model family's way each.
//
// A pattern is a regular expression in the family's tokenizer.json; here it is a hand-written
// matcher over Unicode classes, so that no text makes it backtrack. A new pattern is one more
// matcher in pre_tokenizer_patterns.h and one more row in pre_tokenizer.cc.
#pragma once

#include <cstddef>
#include <string_view>

namespace octet {

struct PreTokenizer {
  std::string_view name;  // as "tokenizer.ggml.pre" spells it
  bool normalizes_nfc;    // the text is brought into NFC before it is split

  // Where the piece that begins at `begin` (below text.size()) ends, always beyond `begin`. The
  // text is valid UTF-8 and `begin` the end of the piece before it, or 0. Walking a whole text
  // takes time linear in it.
  std::size_t (*piece_end)(std::string_view text, std::size_t begin);
};

// Throws Error{unsupported} that names `source`, the key and the value where no pattern is so
// called.
const PreTokenizer& find_pre_tokenizer(std::string_view name, std::string_view source);

}  // namespace octet
