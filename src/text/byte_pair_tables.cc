#include "text/byte_pair_tables.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "text/byte_level.h"
#include "text/gguf_pre_tokenizer.h"
#include "text/score_merges.h"

namespace octet {
namespace {

// The types, checked; all normal where the file has none.
std::vector<TokenType> read_types(const BytePairTables& tables) {
  const std::size_t count = tables.tokens.size();
  if (count == 0) return {};  // refused as a vocabulary
  if (!tables.token_types.empty() && tables.token_types.size() != count) {
    throw_bad_input(
        "{}: tokenizer.ggml.token_type has {} entries, expected {} as tokenizer.ggml.tokens has.",
        tables.source, tables.token_types.size(), count);
  }
  std::vector<TokenType> types(count, TokenType::normal);
  for (std::size_t i = 0; i < tables.token_types.size(); ++i) {
    const std::int64_t number = tables.token_types[i];
    if (number < 1 || number > 6) {
      throw_bad_input("{}: tokenizer.ggml.token_type[{}] is {}, expected 1 to 6.", tables.source, i,
                      number);
    }
    types[i] = static_cast<TokenType>(number);
  }
  return types;
}

std::string with_spaces(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const bool is_sign = text.substr(at, metaspace.size()) == metaspace;
    result += is_sign ? ' ' : text[at];
    at += is_sign ? metaspace.size() : 1;
  }
  return result;
}

// Converters write the runs of spaces that the user defined as they read; in the vocabulary, and in
// the text that is merged, a space is its sign.
void restore_space_runs(std::vector<std::string>& tokens, const std::vector<TokenType>& types) {
  const auto is_run = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of(' ') == std::string_view::npos;
  };
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (types[i] != TokenType::user_defined || !is_run(tokens[i])) continue;
    std::string signs;
    for (std::size_t n = 0; n < tokens[i].size(); ++n) signs += metaspace;
    if (std::find(tokens.begin(), tokens.end(), signs) == tokens.end()) tokens[i] = signs;
  }
}

std::string bytes_of(const BytePairTables& tables, std::size_t i, TokenType type) {
  const std::string& text = tables.tokens[i];
  if (tables.model == "gpt2") {
    if (is_added_type(type)) return text;
    // A token outside the alphabet stands for its own text, as in the `tokenizers` package.
    return byte_level_bytes(text).value_or(text);
  }
  if (type != TokenType::byte) return with_spaces(text);
  const auto byte = byte_of_token(text);
  if (!byte) {
    throw_bad_input("{}: tokenizer.ggml.tokens[{}] is {}, expected <0x00> to <0xFF> for a byte.",
                    tables.source, i, printable(text));
  }
  return std::string(1, static_cast<char>(*byte));
}

Vocabulary read_vocabulary(BytePairTables& tables) {
  const std::vector<TokenType> types = read_types(tables);
  if (tables.model != "gpt2") restore_space_runs(tables.tokens, types);
  std::vector<Vocabulary::Token> tokens;
  tokens.reserve(types.size());
  for (std::size_t i = 0; i < types.size(); ++i) {
    // Bytes are taken from a text that the vocabulary has yet to check.
    const bool valid = is_valid_utf8(tables.tokens[i]);
    std::string bytes = valid ? bytes_of(tables, i, types[i]) : std::string();
    tokens.push_back({std::move(tables.tokens[i]), std::move(bytes), types[i]});
  }
  tables.tokens = {};
  return Vocabulary(std::move(tokens), tables.source, "tokenizer.ggml.tokens");
}

std::vector<AddedToken> read_added(const BytePairTables& tables, const Vocabulary& vocabulary) {
  std::vector<AddedToken> added;
  const std::optional<TokenId> table_tag = vocabulary.find("<table>");
  const bool with_html = table_tag && vocabulary.at(*table_tag).type == TokenType::user_defined;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const Vocabulary::Token& token = vocabulary.at(id);
    if (!is_added_type(token.type) || token.text.empty()) continue;
    if (token.text.size() > AddedTokenSplitter::longest_text) {
      throw_bad_input("{}: tokenizer.ggml.tokens[{}] is a special token of {} bytes, expected {}.",
                      tables.source, id, token.text.size(),
                      fmt::format("at most {}", AddedTokenSplitter::longest_text));
    }
    AddedToken one;
    one.id = id;
    one.text = token.text;
    one.plain = token.type == TokenType::user_defined && is_plain_added_text(token.text, with_html);
    added.push_back(std::move(one));
  }
  return added;
}

std::vector<MergeTable::Merge> read_merges(const BytePairTables& tables,
                                           const Vocabulary& vocabulary) {
  std::vector<MergeTable::Merge> merges;
  merges.reserve(tables.merges.size());
  std::string result;
  for (std::size_t rank = 0; rank < tables.merges.size(); ++rank) {
    const std::string_view merge = tables.merges[rank];
    const std::size_t space = merge.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string_view::npos) {
      throw_bad_input("{}: tokenizer.ggml.merges[{}] is not two tokens with one space between.",
                      tables.source, rank);
    }
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = merge.substr(space + 1);
    result.assign(left).append(right);
    const auto id_of = [&](std::string_view text) {
      const auto id = vocabulary.find(text);
      if (id) return *id;
      throw_bad_input(
          "{}: tokenizer.ggml.merges[{}] needs a token that tokenizer.ggml.tokens lacks.",
          tables.source, rank);
    };
    const MergeTable::Merge one = {id_of(left), id_of(right), id_of(result)};
    // Text that spells a special token must not become it.
    if (!is_special_type(vocabulary.at(one.result).type)) merges.push_back(one);
  }
  return merges;
}

std::vector<double> checked_scores(const BytePairTables& tables, TokenId count) {
  if (tables.scores.size() != static_cast<std::size_t>(count)) {
    throw_bad_input(
        "{}: tokenizer.ggml.scores has {} entries, expected {} as tokenizer.ggml.tokens has.",
        tables.source, tables.scores.size(), count);
  }
  for (std::size_t i = 0; i < tables.scores.size(); ++i) {
    if (!std::isfinite(tables.scores[i])) {
      throw_bad_input("{}: tokenizer.ggml.scores[{}] is {}, expected a finite number.",
                      tables.source, i, tables.scores[i]);
    }
  }
  return tables.scores;
}

std::optional<TokenId> checked_id(const BytePairTables& tables, const Vocabulary& vocabulary,
                                  std::string_view key, std::optional<std::uint64_t> id) {
  if (!id) return std::nullopt;
  if (*id >= static_cast<std::uint64_t>(vocabulary.size())) {
    throw_bad_input("{}: tokenizer.ggml.{} is {}, but the vocabulary has {} tokens.", tables.source,
                    key, *id, vocabulary.size());
  }
  return static_cast<TokenId>(*id);
}

void read_special_ids(const BytePairTables& tables, bool adds_beginning, BytePairParts& parts) {
  const auto checked = [&](std::string_view key, std::optional<std::uint64_t> id) {
    return checked_id(tables, parts.vocabulary, key, id);
  };
  parts.beginning_of_text = checked("bos_token_id", tables.bos_token_id);
  parts.adds_beginning_of_text = tables.add_bos_token.value_or(adds_beginning);
  if (!parts.beginning_of_text && parts.adds_beginning_of_text) {
    if (tables.add_bos_token) {
      throw_bad_input(
          "{}: tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id {}.",
          tables.source, "is missing");
    }
    parts.adds_beginning_of_text = false;
  }
  for (const auto& id :
       {checked("eos_token_id", tables.eos_token_id), checked("eot_token_id", tables.eot_token_id),
        checked("eom_token_id", tables.eom_token_id)}) {
    if (id) parts.declared_end_tokens.push_back(*id);
  }
}

// The merges of a token take time with the square of its length; the longest of real vocabularies
// is a run of 31 signs for a space (93 bytes).
void refuse_long_tokens(const BytePairTables& tables, const Vocabulary& vocabulary) {
  constexpr std::size_t longest = 256;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::size_t bytes = vocabulary.at(id).text.size();
    if (bytes > longest) {
      throw_bad_input("{}: tokenizer.ggml.tokens[{}] has {} bytes, expected at most {}.",
                      tables.source, id, bytes, longest);
    }
  }
}

// BPE over characters: SentencePiece's ("llama", merges by score) and Gemma 4's (merges listed).
void read_character_model(const BytePairTables& tables, BytePairParts& parts) {
  const bool by_score = tables.model == "llama";
  if (by_score) refuse_long_tokens(tables, parts.vocabulary);
  const std::string_view own_name = by_score ? "default" : "gemma4";
  if (!tables.pre_tokenizer.empty() && tables.pre_tokenizer != own_name) {
    throw_unsupported("{}: tokenizer.ggml.pre is {}, but octet knows '{}' only for the model '{}'",
                      tables.source, printable(tables.pre_tokenizer), own_name, tables.model);
  }
  parts.byte_level = false;
  parts.fuse_unknown = true;
  for (TokenId id = 0; id < parts.vocabulary.size(); ++id) {
    const TokenType type = parts.vocabulary.at(id).type;
    if (type == TokenType::byte) parts.byte_fallback = true;
    if (type == TokenType::unknown && !parts.unknown) parts.unknown = id;
  }
  if (const auto id =
          checked_id(tables, parts.vocabulary, "unknown_token_id", tables.unknown_token_id)) {
    parts.unknown = id;
  }
  std::vector<NormalizerStep> steps;
  parts.strips_leading_space = tables.add_space_prefix.value_or(by_score);
  if (parts.strips_leading_space) {
    steps.push_back({NormalizerStep::Kind::prepend, {}, std::string(metaspace)});
  }
  steps.push_back({NormalizerStep::Kind::replace, " ", std::string(metaspace)});
  parts.normalizer = Normalizer(std::move(steps));
  parts.merges =
      by_score ? merges_of_scores(parts.vocabulary, checked_scores(tables, parts.vocabulary.size()))
               : read_merges(tables, parts.vocabulary);
}

void read_byte_model(const BytePairTables& tables, BytePairParts& parts) {
  const GgufPreTokenizer& family = find_gguf_pre_tokenizer(tables.pre_tokenizer, tables.source);
  if (family.normalizes_nfc) {
    parts.normalizer = Normalizer({{NormalizerStep::Kind::nfc}});
  }
  parts.pre_tokenizer = make_pre_tokenizer(family);
  parts.ignore_merges = family.ignores_merges;
  parts.merges = read_merges(tables, parts.vocabulary);
}

}  // namespace

BytePairParts make_byte_pair_parts(BytePairTables tables) {
  const bool byte_level = tables.model == "gpt2";
  if (!byte_level && tables.model != "llama" && tables.model != "gemma4") {
    throw_unsupported("{}: tokenizer.ggml.model is {}, but octet reads 'gpt2', 'llama' and {} only",
                      tables.source, printable(tables.model), "'gemma4'");
  }
  // An unknown pattern is refused before the tables are read.
  const bool adds_beginning =
      byte_level
          ? find_gguf_pre_tokenizer(tables.pre_tokenizer, tables.source).adds_beginning_of_text
          : tables.model == "llama";
  BytePairParts parts;
  parts.vocabulary = read_vocabulary(tables);
  parts.added = read_added(tables, parts.vocabulary);
  if (byte_level) {
    read_byte_model(tables, parts);
  } else {
    read_character_model(tables, parts);
  }
  read_special_ids(tables, adds_beginning, parts);
  return parts;
}

}  // namespace octet
