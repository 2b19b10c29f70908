// The families of byte-level BPE that GGUF tells apart by name ("tokenizer.ggml.pre").
#pragma once

#include <array>
#include <string_view>

#include "text/pre_tokenizer.h"

namespace octet {

// GGUF gives a name for what tokenizer.json spells out.
struct GgufPreTokenizer {
  std::string_view name;
  PreTokenizer::PieceEnd piece_end = nullptr;  // or else
  std::array<std::string_view, 3> patterns{};  // one after the other, up to the first empty one
  bool normalizes_nfc = false;
  bool ignores_merges = false;
  bool adds_beginning_of_text = false;  // where the file does not say
};

// Throws Error{unsupported} that names `source`, the key and the value where no family is so
// called.
const GgufPreTokenizer& find_gguf_pre_tokenizer(std::string_view name, std::string_view source);

PreTokenizer make_pre_tokenizer(const GgufPreTokenizer& family);

}  // namespace octet
