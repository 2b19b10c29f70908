// Byte pair encoding: GPT-2's tokenizer over bytes and its descendants, and SentencePiece's over
// characters.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/byte_pair_parts.h"
#include "text/byte_pair_tables.h"
#include "text/tokenizer.h"

namespace octet {

class BytePairTokenizer final : public Tokenizer {
 public:
  explicit BytePairTokenizer(BytePairParts parts);
  // Throws as make_byte_pair_parts does.
  explicit BytePairTokenizer(BytePairTables tables);
  BytePairTokenizer(const BytePairTokenizer&) = delete;
  BytePairTokenizer& operator=(const BytePairTokenizer&) = delete;

  std::vector<TokenId> encode(std::string_view text, SpecialText special) const override;
  std::vector<TokenId> encode(std::span<const PromptPiece> pieces) const override;
  std::string_view token_bytes(TokenId token) const override;
  std::string_view token_text(TokenId token) const override;
  TokenId vocabulary_size() const override { return parts_.vocabulary.size(); }
  bool is_special(TokenId token) const override;
  std::optional<TokenId> find_token(std::string_view text) const override;
  std::optional<TokenId> beginning_of_text() const override { return parts_.beginning_of_text; }
  bool adds_beginning_of_text() const override { return parts_.adds_beginning_of_text; }
  bool strips_leading_space() const override { return parts_.strips_leading_space; }
  const std::vector<TokenId>& end_tokens() const override { return end_tokens_; }

 private:
  // Added tokens that are searched for before and after a text is normalised.
  struct AddedSplitters {
    AddedTokenSplitter raw;
    AddedTokenSplitter normalized;
  };
  struct Work {
    MergeTable::Workspace merging;
    std::vector<PreTokenizer::Piece> pieces;
    std::vector<TokenId> symbols;
    std::vector<TokenId> ids;  // the result
  };

  void read_symbols();
  AddedSplitters make_splitters(bool only_plain) const;
  void encode_raw(std::string_view text, const AddedSplitters& added, bool begins_text,
                  Work& work) const;
  void encode_normalized(std::string_view text, const AddedSplitters& added, bool begins_text,
                         Work& work) const;
  void encode_ordinary(std::string_view text, bool begins_text, Work& work) const;
  void append_byte_symbols(std::string_view piece, std::vector<TokenId>& symbols) const;
  void append_character_symbols(std::string_view piece, std::vector<TokenId>& symbols) const;

  BytePairParts parts_;
  std::array<TokenId, 256> byte_ids_{};  // -1: the vocabulary lacks the byte
  std::unordered_map<char32_t, TokenId> character_ids_;
  // Whole pieces by their bytes, where merges are ignored for them; views of the vocabulary.
  std::unordered_map<std::string_view, TokenId> whole_pieces_;
  MergeTable merges_;
  AddedSplitters all_added_;
  AddedSplitters plain_added_;   // what a user's text may hold
  AddedTokenSplitter protocol_;  // what only a template may write
  std::vector<TokenId> end_tokens_;
};

}  // namespace octet
