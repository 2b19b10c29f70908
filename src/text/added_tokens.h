// Tokens that are found in a text before it is split: turn markers, tags, runs of white space.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/special_token_matcher.h"
#include "text/tokenizer.h"

namespace octet {

// Flags as tokenizer.json's "added_tokens" has them.
struct AddedToken {
  TokenId id = -1;
  std::string text;
  bool single_word = false;  // only where no word character is its neighbour
  bool lstrip = false;       // white space before it belongs to it
  bool rstrip = false;       // white space after it belongs to it
  bool normalized = false;   // found in the normalised text, not in the raw one
  bool plain = false;        // a user's text may hold it: see is_plain_added_text()
};

class AddedTokenSplitter {
 public:
  // Longer texts are refused: a search costs at most this much a byte.
  static constexpr std::size_t longest_text = SpecialTokenMatcher::longest_text;

  struct Part {
    std::size_t begin;
    std::size_t end;
    TokenId id;  // -1: text between tokens
  };

  AddedTokenSplitter() = default;
  // Texts are valid UTF-8, not empty and at most `longest_text` bytes long.
  explicit AddedTokenSplitter(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  // Leftmost, of those the longest, as the `tokenizers` package's AddedVocabulary finds them. Parts
  // of text are not empty. Where a token that takes the white space after it is followed by one
  // that is white space, their ranges overlap, as they do there.
  std::vector<Part> split(std::string_view valid_text) const;

  struct Found {
    SpecialTokenMatcher::Match match;
    const AddedToken* token;
  };
  // The first token at or after `begin` that may stand where it does.
  std::optional<Found> find(std::string_view valid_text, std::size_t begin) const;

 private:
  std::vector<AddedToken> tokens_;
  SpecialTokenMatcher matcher_;  // its ids are indices of tokens_, its texts views of theirs
};

// Where the white space that ends at `end` begins, and where that which begins at `begin` ends.
std::size_t begin_of_space_before(std::string_view valid_text, std::size_t end);
std::size_t end_of_space_after(std::string_view valid_text, std::size_t begin);

}  // namespace octet
