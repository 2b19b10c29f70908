// Splits a text into the pieces that byte pair encoding works on: one or several steps, each of
// which splits the pieces of the one before.
//
// A step is a regular expression in the family's tokenizer.json. Those that octet knows are
// hand-written matchers over Unicode classes (pre_tokenizer_patterns.h), which no text makes
// backtrack; a new one is one more matcher there and one more row in known_patterns.cc. All others
// run through PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "text/regex_splitter.h"

namespace octet {

// What becomes of a match, as tokenizer.json's "behavior" says.
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

class PreTokenizer {
 public:
  struct Piece {
    std::size_t begin;
    std::size_t end;
  };

  // Where the piece that begins at `begin` (below text.size()) ends, always beyond `begin`. The
  // text is valid UTF-8 and `begin` the end of the piece before it, or 0. Walking a whole text
  // takes time linear in it.
  using PieceEnd = std::size_t (*)(std::string_view text, std::size_t begin);

  struct Step {
    PieceEnd piece_end = nullptr;                          // or else
    std::shared_ptr<const RegexSplitter> regex = nullptr;  // with
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false;  // what the pattern matches lies between the matches
  };

  PreTokenizer() = default;  // a text that is not empty is one piece
  explicit PreTokenizer(std::vector<Step> steps);

  // The pieces of valid UTF-8, from left to right, none empty; takes the place of what was there.
  void split(std::string_view text, std::vector<Piece>& pieces) const;

 private:
  std::vector<Step> steps_;
};

// The step for a pattern of tokenizer.json that isolates its matches: a matcher where octet knows
// the pattern, PCRE2 otherwise. `source` names the file and the place, for errors.
PreTokenizer::Step make_split_step(std::string_view pattern, std::string_view source);

}  // namespace octet
