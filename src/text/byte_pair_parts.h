// What a byte pair tokenizer is put together from, whichever file it came from.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/merge_table.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/vocabulary.h"

namespace octet {

// Checked: ids lie in the vocabulary, added tokens have texts that can be searched for.
struct BytePairParts {
  Vocabulary vocabulary;
  std::vector<AddedToken> added;
  Normalizer normalizer;
  Normalizer spacing;  // what comes between normalised added tokens is spaced before it is split
  PreTokenizer pre_tokenizer;

  // What merging begins with: the bytes in GPT-2's alphabet, or the characters.
  bool byte_level = true;
  // A character that the vocabulary lacks becomes its bytes' tokens ("<0xE2>"), where it has them
  // all. Only without `byte_level`.
  bool byte_fallback = false;
  // What is neither a token nor has bytes becomes this; without it, nothing.
  std::optional<TokenId> unknown;
  bool fuse_unknown = false;  // a run of such becomes one token
  // A piece that is a token is left whole, whatever the merges would make of it.
  bool ignore_merges = false;
  std::vector<MergeTable::Merge> merges;

  std::optional<TokenId> beginning_of_text;
  bool adds_beginning_of_text = false;
  std::vector<TokenId> declared_end_tokens;
  // A space before the text was added by the normaliser: decoding takes it away again.
  bool strips_leading_space = false;
};

// The sign for a space in vocabularies of SentencePiece, U+2581.
inline constexpr std::string_view metaspace = "\xE2\x96\x81";

// "<0x0A>": the token of a byte in such vocabularies; nothing for other spellings.
std::optional<unsigned char> byte_of_token(std::string_view text);
std::string token_of_byte(unsigned char byte);

// Added tokens are of two kinds. Some are text like any other that the vocabulary happens to hold
// whole: runs of white space and HTML's tags (Gemma). They are found in a user's text as well, as
// the model was trained. All others (turn markers, tool calls, images) belong to the protocol, and
// a user's text never becomes one. `with_html`: the vocabulary has HTML's tags as a family, so that
// its "<s>" is one of them.
bool is_plain_added_text(std::string_view text, bool with_html);

}  // namespace octet
