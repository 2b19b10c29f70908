#include "text/byte_pair_tokenizer.h"

#include <utility>

#include "core/error.h"
#include "core/utf8.h"
#include "text/byte_level.h"
#include "text/tokenizer_end_tokens.h"

namespace octet {
namespace {

void require_valid(std::string_view text) {
  if (const auto offset = find_invalid_utf8(text)) {
    throw_bad_input("the text is not valid UTF-8 from byte {} on", *offset);
  }
}

// The symbols that merging begins with, in the order in which the `tokenizers` package adds them:
// an unknown one waits until it is known that the next is not to be fused with it.
class SymbolWriter {
 public:
  SymbolWriter(std::vector<TokenId>& symbols, std::optional<TokenId> unknown, bool fuses)
      : symbols_(symbols), unknown_(unknown), fuses_(fuses) {}

  void add_known(TokenId id) {
    flush();
    symbols_.push_back(id);
  }
  void add_byte(TokenId id) { symbols_.push_back(id); }
  void add_unknown() {
    if (!unknown_ || (waits_ && fuses_)) return;
    flush();
    waits_ = true;
  }
  void flush() {
    if (waits_) symbols_.push_back(*unknown_);
    waits_ = false;
  }

 private:
  std::vector<TokenId>& symbols_;
  std::optional<TokenId> unknown_;
  bool fuses_;
  bool waits_ = false;
};

}  // namespace

BytePairTokenizer::BytePairTokenizer(BytePairTables tables)
    : BytePairTokenizer(make_byte_pair_parts(std::move(tables))) {}

BytePairTokenizer::BytePairTokenizer(BytePairParts parts) : parts_(std::move(parts)) {
  read_symbols();
  merges_ = MergeTable(vocabulary_size(), parts_.merges);
  parts_.merges = {};
  all_added_ = make_splitters(false);
  plain_added_ = make_splitters(true);
  std::vector<AddedToken> protocol;
  for (const AddedToken& token : parts_.added) {
    if (!token.plain) protocol.push_back(token);
  }
  protocol_ = AddedTokenSplitter(std::move(protocol));
  end_tokens_ = find_end_tokens(*this, parts_.declared_end_tokens);
}

// Ordinary text never becomes a special token, whatever the vocabulary calls it.
void BytePairTokenizer::read_symbols() {
  const Vocabulary& vocabulary = parts_.vocabulary;
  const auto ordinary = [&](std::string_view text) {
    const std::optional<TokenId> id = vocabulary.find(text);
    return id && !is_special_type(vocabulary.at(*id).type) ? *id : TokenId{-1};
  };
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::string spelling;
    if (parts_.byte_level) {
      append_utf8(byte_level_character(static_cast<std::uint8_t>(byte)), spelling);
    } else {
      spelling = token_of_byte(static_cast<unsigned char>(byte));
    }
    byte_ids_[byte] = ordinary(spelling);
  }
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const Vocabulary::Token& token = vocabulary.at(id);
    if (is_special_type(token.type) || token.text.empty()) continue;
    if (parts_.byte_level) {
      if (parts_.ignore_merges && !is_added_type(token.type)) whole_pieces_[token.bytes] = id;
      continue;
    }
    const Character first = character_at(token.text, 0);
    if (first.bytes == token.text.size()) character_ids_[first.code_point] = id;
    if (parts_.ignore_merges && token.type != TokenType::byte) whole_pieces_[token.text] = id;
  }
}

BytePairTokenizer::AddedSplitters BytePairTokenizer::make_splitters(bool only_plain) const {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  for (AddedToken token : parts_.added) {
    if (only_plain && !token.plain) continue;
    if (!token.normalized) {
      raw.push_back(std::move(token));
      continue;
    }
    // What is sought in normalised text is normalised itself.
    std::string buffer;
    token.text = std::string(parts_.normalizer.apply(token.text, true, buffer));
    if (!token.text.empty()) normalized.push_back(std::move(token));
  }
  return {AddedTokenSplitter(std::move(raw)), AddedTokenSplitter(std::move(normalized))};
}

std::string_view BytePairTokenizer::token_bytes(TokenId token) const {
  return parts_.vocabulary.at(token).bytes;
}

std::string_view BytePairTokenizer::token_text(TokenId token) const {
  return parts_.vocabulary.at(token).text;
}

bool BytePairTokenizer::is_special(TokenId token) const {
  return is_special_type(parts_.vocabulary.at(token).type);
}

std::optional<TokenId> BytePairTokenizer::find_token(std::string_view text) const {
  return parts_.vocabulary.find(text);
}

std::vector<TokenId> BytePairTokenizer::encode(std::string_view text, SpecialText special) const {
  require_valid(text);
  Work work;
  encode_raw(text, special == SpecialText::parse ? all_added_ : plain_added_, true, work);
  return std::move(work.ids);
}

std::vector<TokenId> BytePairTokenizer::encode(std::span<const PromptPiece> pieces) const {
  if (pieces.size() == 1) {
    return encode(pieces[0].text, pieces[0].literal ? SpecialText::literal : SpecialText::parse);
  }
  Work work;
  std::string ordinary;      // what lies between two protocol tokens, whatever pieces it came from
  bool begins_text = true;   // no token stands before it
  bool skips_space = false;  // the token before it takes the white space after it
  const auto append = [&](std::string_view text) {
    if (skips_space) text.remove_prefix(end_of_space_after(text, 0));
    skips_space = skips_space && text.empty();
    ordinary += text;
  };
  for (const PromptPiece& piece : pieces) {
    require_valid(piece.text);
    const std::string_view text = piece.text;
    std::size_t begin = 0;
    while (!piece.literal) {
      const auto found = protocol_.find(text, begin);
      if (!found) break;
      append(text.substr(begin, found->match.begin - begin));
      if (found->token->lstrip) ordinary.resize(begin_of_space_before(ordinary, ordinary.size()));
      encode_raw(ordinary, plain_added_, begins_text, work);
      ordinary.clear();
      work.ids.push_back(found->token->id);
      begins_text = false;
      skips_space = found->token->rstrip;
      begin = found->match.end;
    }
    append(text.substr(begin));
  }
  encode_raw(ordinary, plain_added_, begins_text, work);
  return std::move(work.ids);
}

void BytePairTokenizer::encode_raw(std::string_view text, const AddedSplitters& added,
                                   bool begins_text, Work& work) const {
  std::string buffer;
  for (const AddedTokenSplitter::Part& part : added.raw.split(text)) {
    if (part.id >= 0) {
      work.ids.push_back(part.id);
      continue;
    }
    const std::string_view piece = text.substr(part.begin, part.end - part.begin);
    const bool first = begins_text && part.begin == 0;
    encode_normalized(parts_.normalizer.apply(piece, first, buffer), added, first, work);
  }
}

void BytePairTokenizer::encode_normalized(std::string_view text, const AddedSplitters& added,
                                          bool begins_text, Work& work) const {
  if (added.normalized.empty()) return encode_ordinary(text, begins_text, work);
  for (const AddedTokenSplitter::Part& part : added.normalized.split(text)) {
    if (part.id >= 0) {
      work.ids.push_back(part.id);
    } else {
      const std::string_view piece = text.substr(part.begin, part.end - part.begin);
      encode_ordinary(piece, begins_text && part.begin == 0, work);
    }
  }
}

void BytePairTokenizer::encode_ordinary(std::string_view text, bool begins_text, Work& work) const {
  std::string spaced;
  text = parts_.spacing.apply(text, begins_text, spaced);
  parts_.pre_tokenizer.split(text, work.pieces);
  for (const auto& [begin, end] : work.pieces) {
    const std::string_view piece = text.substr(begin, end - begin);
    if (parts_.ignore_merges) {
      if (const auto whole = whole_pieces_.find(piece); whole != whole_pieces_.end()) {
        work.ids.push_back(whole->second);
        continue;
      }
    }
    work.symbols.clear();
    if (parts_.byte_level) {
      append_byte_symbols(piece, work.symbols);
    } else {
      append_character_symbols(piece, work.symbols);
    }
    merges_.apply(work.symbols, work.merging);
    work.ids.insert(work.ids.end(), work.symbols.begin(), work.symbols.end());
  }
}

// A byte that the vocabulary lacks is dropped before its neighbours merge, as the `tokenizers`
// package does where there is no unknown token.
void BytePairTokenizer::append_byte_symbols(std::string_view piece,
                                            std::vector<TokenId>& symbols) const {
  SymbolWriter writer(symbols, parts_.unknown, parts_.fuse_unknown);
  for (const char byte : piece) {
    const TokenId id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id >= 0) {
      writer.add_known(id);
    } else {
      writer.add_unknown();
    }
  }
  writer.flush();
}

void BytePairTokenizer::append_character_symbols(std::string_view piece,
                                                 std::vector<TokenId>& symbols) const {
  SymbolWriter writer(symbols, parts_.unknown, parts_.fuse_unknown);
  for (std::size_t position = 0; position < piece.size();) {
    const Character character = character_at(piece, position);
    const std::string_view bytes = piece.substr(position, character.bytes);
    position += character.bytes;
    if (const auto known = character_ids_.find(character.code_point);
        known != character_ids_.end()) {
      writer.add_known(known->second);
      continue;
    }
    bool has_bytes = parts_.byte_fallback;
    for (const char byte : bytes) {
      has_bytes = has_bytes && byte_ids_[static_cast<unsigned char>(byte)] >= 0;
    }
    if (!has_bytes) {
      writer.add_unknown();
      continue;
    }
    for (const char byte : bytes) writer.add_byte(byte_ids_[static_cast<unsigned char>(byte)]);
  }
  writer.flush();
}

}  // namespace octet
