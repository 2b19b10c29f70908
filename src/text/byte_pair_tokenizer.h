// Byte-level byte pair encoding: GPT-2's tokenizer and its descendants.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/merge_table.h"
#include "text/pre_tokenizer.h"
#include "text/special_token_matcher.h"
#include "text/tokenizer.h"

namespace octet {

// GGUF's numbers for "tokenizer.ggml.token_type".
enum class TokenType : std::uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

// What a tokenizer is made of, as a file states it: nothing here has been checked. The comments
// name the GGUF keys, which errors name too.
struct BytePairTables {
  std::string source;                         // the file's name, for errors
  std::string pre_tokenizer;                  // tokenizer.ggml.pre
  std::vector<std::string> tokens;            // tokenizer.ggml.tokens
  std::vector<std::int64_t> token_types;      // tokenizer.ggml.token_type; empty: all normal
  std::vector<std::string> merges;            // tokenizer.ggml.merges, "left right", the best first
  std::optional<std::uint64_t> bos_token_id;  // tokenizer.ggml.bos_token_id, ...
  std::optional<std::uint64_t> eos_token_id;
  std::optional<std::uint64_t> eot_token_id;
  std::optional<std::uint64_t> eom_token_id;
  bool add_bos_token = false;  // tokenizer.ggml.add_bos_token
};

class BytePairTokenizer final : public Tokenizer {
 public:
  // Throws Error{bad_input} that names the source and the key for broken tables, Error{unsupported}
  // for an unknown pre-tokenizer.
  explicit BytePairTokenizer(BytePairTables tables);
  BytePairTokenizer(const BytePairTokenizer&) = delete;
  BytePairTokenizer& operator=(const BytePairTokenizer&) = delete;

  std::vector<TokenId> encode(std::string_view text, SpecialText special) const override;
  std::vector<TokenId> encode(std::span<const PromptPiece> pieces) const override;
  std::string_view token_bytes(TokenId token) const override;
  std::string_view token_text(TokenId token) const override;
  TokenId vocabulary_size() const override { return static_cast<TokenId>(tokens_.size()); }
  bool is_special(TokenId token) const override;
  std::optional<TokenId> find_token(std::string_view text) const override;
  std::optional<TokenId> beginning_of_text() const override { return beginning_of_text_; }
  bool adds_beginning_of_text() const override { return adds_beginning_of_text_; }
  const std::vector<TokenId>& end_tokens() const override { return end_tokens_; }

 private:
  void read_tokens(std::vector<std::string> texts, const std::vector<std::int64_t>& types);
  void read_merges(const std::vector<std::string>& merges);
  void read_special_ids(const BytePairTables& tables);
  std::size_t index(TokenId token) const;
  void encode_ordinary(std::string_view text, MergeTable::Workspace& workspace,
                       std::vector<TokenId>& ids) const;

  struct Token {
    std::string text;
    std::string bytes;
    TokenType type;
  };
  std::string source_;
  const PreTokenizer* pre_tokenizer_;
  std::vector<Token> tokens_;
  std::unordered_map<std::string_view, TokenId> ids_;  // the keys are views of tokens_
  std::array<TokenId, 256> byte_ids_{};                // -1: the vocabulary lacks the byte
  MergeTable merges_;
  SpecialTokenMatcher special_tokens_;
  std::optional<TokenId> beginning_of_text_;
  bool adds_beginning_of_text_ = false;
  std::vector<TokenId> end_tokens_;
};

}  // namespace octet
