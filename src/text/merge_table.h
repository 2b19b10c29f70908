// Byte pair encoding's merges: which two neighbouring tokens become which one, and which go first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace octet {

class MergeTable {
 public:
  struct Merge {
    TokenId left;
    TokenId right;
    TokenId result;
  };

  // Reused from word to word, so that a word costs no allocation.
  struct Workspace {
    struct Symbol {
      std::uint32_t previous;
      std::uint32_t next;
      std::uint32_t rank;  // of the merge with the next one
    };
    std::vector<Symbol> symbols;
    std::vector<std::uint64_t> queue;
  };

  MergeTable() = default;
  // `merges` by rank, the best first; of two for the same pair the later holds, as in the
  // `tokenizers` package. All ids must lie in [0, vocabulary_size).
  MergeTable(TokenId vocabulary_size, std::span<const Merge> merges);

  // Merges the neighbours of lowest rank, of several the leftmost, until no merge applies.
  // O(n log n) time; throws Error{bad_input} for 2^32 tokens or more.
  void apply(std::vector<TokenId>& tokens, Workspace& workspace) const;

 private:
  struct Entry {
    TokenId right;
    std::uint32_t rank;
  };
  std::uint32_t find_rank(TokenId left, TokenId right) const;

  // The entries of one left token are neighbours, sorted by right token: a search looks at a few
  // cache lines, and no choice of merges makes it slow, as a hash table's could be.
  std::vector<std::uint32_t> first_entry_;  // by left token, and one past the last
  std::vector<Entry> entries_;
  std::vector<TokenId> results_;  // by rank
};

}  // namespace octet
