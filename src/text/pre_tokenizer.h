// Splits a text into the pieces that byte pair encoding works on: one or several steps, each of
// which splits the pieces of the one before.
//
// A step is a regular expression in the family's tokenizer.json; those that octet knows are
// hand-written matchers over Unicode classes (pre_tokenizer_patterns.h), which no text makes
// backtrack.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace octet {

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

  PreTokenizer() = default;  // a text that is not empty is one piece
  explicit PreTokenizer(std::vector<PieceEnd> steps);

  // The pieces of valid UTF-8, from left to right, none empty; takes the place of what was there.
  void split(std::string_view text, std::vector<Piece>& pieces) const;

 private:
  std::vector<PieceEnd> steps_;
};

}  // namespace octet
