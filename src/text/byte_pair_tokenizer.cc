#include "text/byte_pair_tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"
#include "text/byte_level.h"
#include "text/tokenizer_end_tokens.h"
#include "text/unicode.h"
#include "text/unicode_normalization.h"

namespace octet {
namespace {

bool is_special_type(TokenType type) {
  return type == TokenType::control || type == TokenType::unknown;
}

// Tokens that are matched in the raw text, before it is split; they are spelled as they read.
bool is_added_type(TokenType type) {
  return is_special_type(type) || type == TokenType::user_defined;
}

std::string bytes_of(const std::string& text, TokenType type) {
  if (is_added_type(type)) return text;
  // A token outside the alphabet stands for its own text, as in the `tokenizers` package.
  return byte_level_bytes(text).value_or(text);
}

}  // namespace

BytePairTokenizer::BytePairTokenizer(BytePairTables tables)
    : source_(std::move(tables.source)),
      pre_tokenizer_(&find_pre_tokenizer(tables.pre_tokenizer, source_)) {
  read_tokens(std::move(tables.tokens), tables.token_types);
  read_merges(tables.merges);
  read_special_ids(tables);
}

void BytePairTokenizer::read_tokens(std::vector<std::string> texts,
                                    const std::vector<std::int64_t>& types) {
  if (texts.empty() || texts.size() > std::numeric_limits<TokenId>::max()) {
    throw_bad_input("{}: tokenizer.ggml.tokens has {} entries, expected 1 to 2^31 - 1.", source_,
                    texts.size());
  }
  if (!types.empty() && types.size() != texts.size()) {
    throw_bad_input(
        "{}: tokenizer.ggml.token_type has {} entries, expected {} as tokenizer.ggml.tokens has.",
        source_, types.size(), texts.size());
  }
  tokens_.reserve(texts.size());  // ids_ holds views of the texts: they must not move
  ids_.reserve(texts.size());
  std::vector<SpecialTokenMatcher::Token> added;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::int64_t type_number =
        types.empty() ? static_cast<std::int64_t>(TokenType::normal) : types[i];
    if (type_number < 1 || type_number > 6) {
      throw_bad_input("{}: tokenizer.ggml.token_type[{}] is {}, expected 1 to 6.", source_, i,
                      type_number);
    }
    if (const auto offset = find_invalid_utf8(texts[i])) {
      throw_bad_input("{}: tokenizer.ggml.tokens[{}] is not valid UTF-8 from its byte {} on.",
                      source_, i, *offset);
    }
    const auto type = static_cast<TokenType>(type_number);
    std::string bytes = bytes_of(texts[i], type);
    tokens_.push_back({std::move(texts[i]), std::move(bytes), type});
    const std::string_view text = tokens_.back().text;
    const auto id = static_cast<TokenId>(i);
    const auto [earlier, is_new] = ids_.emplace(text, id);
    if (!is_new) {
      throw_bad_input("{}: tokenizer.ggml.tokens[{}] repeats the text of token {}.", source_, i,
                      earlier->second);
    }
    if (is_added_type(type) && text.size() > SpecialTokenMatcher::longest_text) {
      throw_bad_input("{}: tokenizer.ggml.tokens[{}] is a special token of {} bytes, expected {}.",
                      source_, i, text.size(),
                      fmt::format("at most {}", SpecialTokenMatcher::longest_text));
    }
    if (is_added_type(type) && !text.empty()) added.push_back({text, id});
  }
  special_tokens_ = SpecialTokenMatcher(std::move(added));

  for (int byte = 0; byte < 256; ++byte) {
    std::string spelling;
    append_utf8(byte_level_character(static_cast<std::uint8_t>(byte)), spelling);
    byte_ids_[static_cast<std::size_t>(byte)] = find_token(spelling).value_or(-1);
  }
}

void BytePairTokenizer::read_merges(const std::vector<std::string>& merges) {
  if (merges.size() >= std::numeric_limits<std::uint32_t>::max()) {
    throw_bad_input("{}: tokenizer.ggml.merges has {} entries, expected fewer than 2^32 - 1.",
                    source_, merges.size());
  }
  std::vector<MergeTable::Merge> by_rank;
  by_rank.reserve(merges.size());
  std::string result;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    const std::size_t space = merge.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string_view::npos) {
      throw_bad_input("{}: tokenizer.ggml.merges[{}] is not two tokens with one space between.",
                      source_, rank);
    }
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = merge.substr(space + 1);
    result.assign(left).append(right);
    const auto id_of = [&](std::string_view text) {
      const auto id = find_token(text);
      if (id) return *id;
      throw_bad_input(
          "{}: tokenizer.ggml.merges[{}] needs a token that tokenizer.ggml.tokens lacks.", source_,
          rank);
    };
    by_rank.push_back({id_of(left), id_of(right), id_of(result)});
  }
  merges_ = MergeTable(vocabulary_size(), by_rank);
}

void BytePairTokenizer::read_special_ids(const BytePairTables& tables) {
  const auto checked = [&](std::string_view key, std::optional<std::uint64_t> id) {
    if (id && *id >= tokens_.size()) {
      throw_bad_input("{}: tokenizer.ggml.{} is {}, but the vocabulary has {} tokens.", source_,
                      key, *id, tokens_.size());
    }
    return id ? std::optional(static_cast<TokenId>(*id)) : std::nullopt;
  };
  beginning_of_text_ = checked("bos_token_id", tables.bos_token_id);
  adds_beginning_of_text_ = tables.add_bos_token;
  if (adds_beginning_of_text_ && !beginning_of_text_) {
    throw_bad_input("{}: tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id {}.",
                    source_, "is missing");
  }
  end_tokens_ = find_end_tokens(*this, {checked("eos_token_id", tables.eos_token_id),
                                        checked("eot_token_id", tables.eot_token_id),
                                        checked("eom_token_id", tables.eom_token_id)});
}

std::size_t BytePairTokenizer::index(TokenId token) const {
  if (token < 0 || token >= vocabulary_size()) {
    throw_bad_input("Token id {} is outside the vocabulary of {} tokens.", token, tokens_.size());
  }
  return static_cast<std::size_t>(token);
}

std::string_view BytePairTokenizer::token_bytes(TokenId token) const {
  return tokens_[index(token)].bytes;
}

std::string_view BytePairTokenizer::token_text(TokenId token) const {
  return tokens_[index(token)].text;
}

bool BytePairTokenizer::is_special(TokenId token) const {
  return is_special_type(tokens_[index(token)].type);
}

std::optional<TokenId> BytePairTokenizer::find_token(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<TokenId> BytePairTokenizer::encode(std::string_view text, SpecialText special) const {
  if (const auto offset = find_invalid_utf8(text)) {
    throw_bad_input("The text is not valid UTF-8 from byte {} on.", *offset);
  }
  std::vector<TokenId> ids;
  MergeTable::Workspace workspace;
  std::size_t begin = 0;
  if (special == SpecialText::parse) {
    while (const auto match = special_tokens_.find(text, begin)) {
      encode_ordinary(text.substr(begin, match->begin - begin), workspace, ids);
      ids.push_back(match->id);
      begin = match->end;
    }
  }
  encode_ordinary(text.substr(begin), workspace, ids);
  return ids;
}

std::vector<TokenId> BytePairTokenizer::encode(std::span<const PromptPiece> pieces) const {
  std::vector<TokenId> ids;
  MergeTable::Workspace workspace;
  std::string ordinary;  // what lies between two special tokens, whatever pieces it came from
  for (const PromptPiece& piece : pieces) {
    if (const auto offset = find_invalid_utf8(piece.text)) {
      throw_bad_input("The text is not valid UTF-8 from byte {} on.", *offset);
    }
    const std::string_view text = piece.text;
    std::size_t begin = 0;
    while (!piece.literal) {
      const auto match = special_tokens_.find(text, begin);
      if (!match) break;
      ordinary += text.substr(begin, match->begin - begin);
      encode_ordinary(ordinary, workspace, ids);
      ordinary.clear();
      ids.push_back(match->id);
      begin = match->end;
    }
    ordinary += text.substr(begin);
  }
  encode_ordinary(ordinary, workspace, ids);
  return ids;
}

void BytePairTokenizer::encode_ordinary(std::string_view text, MergeTable::Workspace& workspace,
                                        std::vector<TokenId>& ids) const {
  std::string normalized;
  if (pre_tokenizer_->normalizes_nfc && !is_plainly_nfc(text)) {
    normalized = normalize_nfc(text);
    text = normalized;
  }
  std::vector<TokenId> piece;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = pre_tokenizer_->piece_end(text, begin);
    piece.clear();
    for (; begin < end; ++begin) {
      // A byte that the vocabulary lacks is dropped before its neighbours merge, as the
      // `tokenizers` package does where there is no unknown token.
      const TokenId id = byte_ids_[static_cast<unsigned char>(text[begin])];
      if (id >= 0) piece.push_back(id);
    }
    merges_.apply(piece, workspace);
    ids.insert(ids.end(), piece.begin(), piece.end());
  }
}

}  // namespace octet
