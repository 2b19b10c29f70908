// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/prompt_piece.h"

namespace octet {

class GgufFile;

using TokenId = std::int32_t;

// What the text of a special token ("<|im_start|>") inside a text means. User-defined tokens
// ("<tool_call>") count with them here, as they are as able to forge a turn, but for white space
// and HTML's tags (text/byte_pair_parts.h).
enum class SpecialText {
  literal,  // characters like any others: what user content must be
  parse,    // the special token: for text that a template wrote
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The tokenizer inside a GGUF file ("tokenizer.ggml.*" keys). Throws Error{unsupported} for a
  // tokenizer model or pre-tokenizer pattern that it does not know, naming it, and Error{bad_input}
  // for broken tables.
  static std::unique_ptr<Tokenizer> from_gguf(const GgufFile& file);

  // Ids of `text`, equal to the `tokenizers` package's; adds no beginning-of-text token. Invalid
  // UTF-8 is an Error{bad_input} that names the byte offset. Decoding the ids need not give the
  // text back: a family may normalise it first (Qwen2: NFC), and bytes that the vocabulary lacks
  // are lost.
  virtual std::vector<TokenId> encode(std::string_view text, SpecialText special) const = 0;

  // The same for a prompt in pieces, as one text: a piece's end splits no token ("user\n" before
  // "\nhello" gives "\n\n" where the vocabulary has it). Only special-token text that lies whole in
  // a piece that is not literal is parsed.
  virtual std::vector<TokenId> encode(std::span<const PromptPiece> pieces) const = 0;

  // The bytes that a token stands for: those of its text for a special or user-defined token, those
  // behind the byte-level alphabet otherwise. A token may end in the middle of a character. Ids
  // outside the vocabulary are an Error{bad_input}, here and in all that take a TokenId.
  virtual std::string_view token_bytes(TokenId token) const = 0;

  // The token as the vocabulary spells it ("Ġthe", "<|im_end|>").
  virtual std::string_view token_text(TokenId token) const = 0;

  virtual TokenId vocabulary_size() const = 0;
  // Control and unknown tokens: never part of an answer's text.
  virtual bool is_special(TokenId token) const = 0;
  virtual std::optional<TokenId> find_token(std::string_view text) const = 0;

  virtual std::optional<TokenId> beginning_of_text() const = 0;
  virtual bool adds_beginning_of_text() const = 0;
  // Encoding puts a space before a text (SentencePiece), which decoding a whole text takes away.
  // What continues a text, as an answer does its prompt, keeps its first space.
  virtual bool strips_leading_space() const { return false; }
  // Tokens that end an answer: end of text, of turn, of message.
  virtual const std::vector<TokenId>& end_tokens() const = 0;

  // Ids to text; special tokens are left out unless asked for; bytes that are no UTF-8 become
  // U+FFFD.
  std::string decode(const std::vector<TokenId>& tokens, bool with_special = false) const;
};

}  // namespace octet
