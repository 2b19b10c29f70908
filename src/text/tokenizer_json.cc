#include "text/tokenizer_json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/printable.h"
#include "text/byte_level.h"
#include "text/byte_pair_tokenizer.h"
#include "text/json_node.h"
#include "text/tokenizer_json_components.h"

namespace octet {
namespace {

// Gemma's tokenizer.json has 33 MB.
constexpr JsonLimits tokenizer_limits = {.max_bytes = std::size_t{128} << 20, .max_depth = 32};
constexpr std::string_view vocabulary_key = "model.vocab";

struct Spelling {
  std::string text;
  TokenType type = TokenType::unused;  // a gap between ids, until something fills it
};

TokenId read_id(const JsonNode& node, std::string_view what) {
  const Json& json = node.json();
  constexpr TokenId most = (TokenId{1} << 24) - 1;
  if (!json.is_number_unsigned() || json.get<std::uint64_t>() > most) {
    throw_bad_input("{}: {} is no token id of at most {}", node.where(), what, most);
  }
  return static_cast<TokenId>(json.get<std::uint64_t>());
}

class Reader {
 public:
  explicit Reader(const TokenizerTexts& texts)
      : texts_(texts),
        json_(parse_json(texts.tokenizer.text, texts.tokenizer.file, tokenizer_limits)),
        root_(json_, texts.tokenizer.file),
        model_(root_.require("model")) {
    if (!texts.config) return;
    config_json_ = parse_json(texts.config->text, texts.config->file);
    config_.emplace(config_json_, texts.config->file);
  }

  BytePairParts read() {
    const std::string type = model_.find_string("type").value_or("BPE");
    if (type != "BPE") model_.refuse_type("the model");
    parts_.normalizer = read_normalizer(root_.find("normalizer"));
    SplittingComponent splitting = read_pre_tokenizer(root_.find("pre_tokenizer"));
    parts_.spacing = std::move(splitting.spacing);
    parts_.pre_tokenizer = std::move(splitting.pre_tokenizer);
    parts_.byte_level = splitting.byte_level;
    decoding_ = read_decoder(root_.find("decoder"));
    if (decoding_.byte_level != parts_.byte_level || !root_.find("decoder")) {
      throw_unsupported(
          "{}: the decoder does not fit the pre_tokenizer: octet knows ByteLevel in both or "
          "neither",
          root_.where());
    }
    parts_.strips_leading_space = decoding_.strips_leading_space;
    read_flags();
    count_tokens();
    read_vocabulary();
    read_added();
    make_vocabulary();
    read_merges();
    read_special_tokens();
    return std::move(parts_);
  }

 private:
  void read_flags() {
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (const auto affix = model_.find_string(key); affix && !affix->empty()) {
        throw_unsupported("{}: octet does not know {}", model_.where(), key);
      }
    }
    if (const auto dropout = model_.find("dropout"); dropout && dropout->json() != 0.0) {
      throw_unsupported("{}: octet encodes without dropout", dropout->where());
    }
    parts_.fuse_unknown = model_.flag("fuse_unk");
    parts_.byte_fallback = model_.flag("byte_fallback");
    parts_.ignore_merges = model_.flag("ignore_merges");
    if (parts_.byte_level && parts_.byte_fallback) {
      throw_unsupported("{}: octet does not know byte_fallback with ByteLevel", model_.where());
    }
  }

  void count_tokens() {
    listed_tokens_ = model_.require("vocab").object().size();
    if (const auto added = root_.find("added_tokens")) listed_tokens_ += added->array().size();
    if (const auto more = config_ ? config_->find("added_tokens_decoder") : std::nullopt) {
      listed_tokens_ += more->object().size();
    }
  }

  Spelling& spelling_of(TokenId id) {
    const auto index = static_cast<std::size_t>(id);
    // Ids may leave gaps, but no file of a few bytes may ask for gigabytes.
    if (index > 2 * listed_tokens_ + 65'536) {
      throw_bad_input("{}: the id {} is far beyond the {} tokens that are listed", root_.where(),
                      id, listed_tokens_);
    }
    if (index >= spellings_.size()) spellings_.resize(index + 1);
    return spellings_[index];
  }

  void read_vocabulary() {
    const JsonNode vocabulary = model_.require("vocab");
    const Json::object_t& entries = vocabulary.object();
    for (const auto& [text, id_json] : entries) {
      const TokenId id = read_id(JsonNode(id_json, vocabulary.where()), printable(text));
      Spelling& spelling = spelling_of(id);
      if (spelling.type != TokenType::unused) {
        throw_bad_input("{}: {} has the id {} of {}", vocabulary.where(), printable(text), id,
                        printable(spelling.text));
      }
      spelling.text = text;
      spelling.type = TokenType::normal;
      ids_[spelling.text] = id;
    }
  }

  void add(const JsonNode& node, TokenId id, bool replaces) {
    AddedToken token;
    token.id = id;
    token.text = node.require_string("content");
    if (token.text.empty() || token.text.size() > AddedTokenSplitter::longest_text) {
      throw_bad_input("{}: the content has {} bytes, expected 1 to {}", node.where(),
                      token.text.size(), AddedTokenSplitter::longest_text);
    }
    Spelling& spelling = spelling_of(id);
    if (spelling.type != TokenType::unused && spelling.text != token.text) {
      throw_bad_input("{}: {} has the id {} of {}", node.where(), printable(token.text), id,
                      printable(spelling.text));
    }
    if (const auto known = ids_.find(token.text); known != ids_.end() && known->second != id) {
      throw_bad_input("{}: {} has the id {}, and {} in {}", node.where(), printable(token.text), id,
                      known->second, vocabulary_key);
    }
    if (is_added_type(spelling.type) && !replaces) return;
    const bool special = node.flag("special");
    spelling.text = token.text;
    spelling.type = special ? TokenType::control : TokenType::user_defined;
    ids_[token.text] = id;
    token.single_word = node.flag("single_word");
    token.lstrip = node.flag("lstrip");
    token.rstrip = node.flag("rstrip");
    token.normalized = node.flag("normalized", !special);
    parts_.added.push_back(std::move(token));
  }

  void read_added() {
    if (const auto added = root_.find("added_tokens")) {
      for (std::size_t i = 0; i < added->array().size(); ++i) {
        const JsonNode token = added->item(i);
        const TokenId id = read_id(token.require("id"), "the value");
        if (id < size() && is_added_type(spelling_of(id).type)) {
          throw_bad_input("{}: the id {} is given twice", token.where(), id);
        }
        add(token, id, true);
      }
    }
    // What only the configuration lists is added as well, as transformers does.
    const auto more = config_ ? config_->find("added_tokens_decoder") : std::nullopt;
    if (!more) return;
    for (const auto& [key, value] : more->object()) {
      std::uint64_t id = key.empty() ? ~0u : 0;
      for (const char c : key)
        id = c >= '0' && c <= '9' && id < 1'000'000'000 ? id * 10 + (c - '0') : ~0u;
      const JsonNode node = more->member(key, value);
      add(node, read_id(JsonNode(Json(id), node.where()), "the key"), false);
    }
  }

  TokenId size() const { return static_cast<TokenId>(spellings_.size()); }

  std::string bytes_of(const Spelling& spelling) const {
    if (parts_.byte_level) {
      // A token outside the alphabet stands for its own text, as in the `tokenizers` package.
      if (is_added_type(spelling.type)) return spelling.text;
      return byte_level_bytes(spelling.text).value_or(spelling.text);
    }
    std::string text = spelling.text;
    for (const auto& [what, with] : decoding_.replacements) text = replace_all(text, what, with);
    return text;
  }

  void make_vocabulary() {
    // HTML's tags count as text where a vocabulary has them as a family.
    const auto table = ids_.find("<table>");
    const bool with_html =
        table != ids_.end() && spelling_of(table->second).type == TokenType::user_defined;
    for (AddedToken& token : parts_.added) {
      const bool user_defined = spelling_of(token.id).type == TokenType::user_defined;
      token.plain = user_defined && is_plain_added_text(token.text, with_html);
    }
    std::vector<Vocabulary::Token> tokens;
    tokens.reserve(spellings_.size());
    for (Spelling& spelling : spellings_) {
      std::string bytes = bytes_of(spelling);
      TokenType type = spelling.type;
      const auto byte = byte_of_token(spelling.text);
      if (decoding_.byte_fallback && byte && type == TokenType::normal) {
        type = TokenType::byte;
        bytes.assign(1, static_cast<char>(*byte));
      }
      tokens.push_back({std::move(spelling.text), std::move(bytes), type});
    }
    ids_.clear();
    spellings_.clear();
    parts_.vocabulary = Vocabulary(std::move(tokens), root_.where(), vocabulary_key);
  }

  TokenId find_token(const std::string& text, const JsonNode& named_by) const {
    const auto id = parts_.vocabulary.find(text);
    if (!id) {
      throw_bad_input("{}: the vocabulary has no token {}", named_by.where(), printable(text));
    }
    return *id;
  }

  // "left right" or ["left", "right"].
  std::pair<std::string_view, std::string_view> read_pair(const Json& merge, const JsonNode& list,
                                                          std::size_t rank) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
    }
    if (merge.is_string()) {
      const std::string_view text = merge.get_ref<const std::string&>();
      const std::size_t space = text.find(' ');
      if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
        return {text.substr(0, space), text.substr(space + 1)};
      }
    }
    list.item(rank).refuse("expected two tokens, in a list or with one space between");
  }

  void read_merges() {
    const JsonNode list = model_.require("merges");
    const Json::array_t& merges = list.array();
    parts_.merges.reserve(merges.size());
    std::string result;
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      const auto [left, right] = read_pair(merges[rank], list, rank);
      if (left.empty() || right.empty()) list.item(rank).refuse("one of the two tokens is empty");
      result.assign(left).append(right);
      const auto left_id = parts_.vocabulary.find(left);
      const auto right_id = parts_.vocabulary.find(right);
      const auto result_id = parts_.vocabulary.find(result);
      if (!left_id || !right_id || !result_id) {
        list.item(rank).refuse("needs a token that model.vocab lacks");
      }
      // Text that spells a special token must not become it.
      if (is_special_type(parts_.vocabulary.at(*result_id).type)) continue;
      parts_.merges.push_back({*left_id, *right_id, *result_id});
    }
  }

  // A token as tokenizer_config.json names it: its text, or an object with it.
  std::optional<TokenId> configured_token(std::string_view key) const {
    const auto node = config_ ? config_->find(key) : std::nullopt;
    if (!node) return std::nullopt;
    if (node->json().is_object()) return find_token(node->require_string("content"), *node);
    return find_token(*config_->find_string(key), *node);
  }

  void read_special_tokens() {
    if (const auto unknown = model_.find("unk_token")) {
      parts_.unknown = find_token(model_.require_string("unk_token"), *unknown);
    }
    parts_.beginning_of_text = configured_token("bos_token");
    if (const auto before = read_post_processor(root_.find("post_processor"))) {
      parts_.beginning_of_text = find_token(*before, root_.require("post_processor"));
      parts_.adds_beginning_of_text = true;
    }
    if (config_ && config_->find("add_bos_token")) {
      parts_.adds_beginning_of_text = config_->flag("add_bos_token");
      if (parts_.adds_beginning_of_text && !parts_.beginning_of_text) {
        config_->refuse("add_bos_token is true, but bos_token is missing");
      }
    }
    if (config_ && config_->flag("add_eos_token")) {
      throw_unsupported("{}: add_eos_token is true: octet puts no token behind a text",
                        config_->where());
    }
    if (const auto end = configured_token("eos_token")) parts_.declared_end_tokens.push_back(*end);
    for (const TokenId id : texts_.end_tokens) {
      if (id < 0 || id >= parts_.vocabulary.size()) {
        throw_bad_input("{}: the end token {} is outside the vocabulary of {} tokens",
                        root_.where(), id, parts_.vocabulary.size());
      }
      parts_.declared_end_tokens.push_back(id);
    }
  }

  const TokenizerTexts& texts_;
  Json json_;
  Json config_json_;
  JsonNode root_;
  JsonNode model_;
  std::optional<JsonNode> config_;
  DecodingComponent decoding_;
  std::size_t listed_tokens_ = 0;    // in all lists together
  std::vector<Spelling> spellings_;  // by id
  std::unordered_map<std::string, TokenId> ids_;
  BytePairParts parts_;
};

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_json(const TokenizerTexts& texts) {
  return std::make_unique<BytePairTokenizer>(Reader(texts).read());
}

std::unique_ptr<Tokenizer> tokenizer_from_folder(const ModelFolder& folder) {
  auto tokenizer = folder.tokenizer();
  if (!tokenizer) throw_bad_input("{}: tokenizer.json is missing", folder.path());
  TokenizerTexts texts{std::move(*tokenizer), folder.tokenizer_config(), {}};
  const auto& generation = folder.generation_config();
  if (const auto ends = generation ? generation->find("eos_token_id") : std::nullopt) {
    const bool one = ends->kind() != JsonKind::array;
    const auto ids = one ? std::vector<std::int64_t>{ends->as_integer()} : ends->as_integers();
    for (const std::int64_t id : ids) {
      if (id < 0 || id >= std::int64_t{1} << 31) {
        throw_bad_input("{}: {} is no token id", ends->where(), id);
      }
      texts.end_tokens.push_back(static_cast<TokenId>(id));
    }
  }
  return tokenizer_from_json(texts);
}

std::optional<FolderText> find_chat_template(const std::optional<FolderText>& jinja,
                                             const std::optional<FolderText>& tokenizer_config,
                                             std::string_view name) {
  if (jinja && name == "default") return jinja;
  if (!tokenizer_config) return std::nullopt;
  const Json json = parse_json(tokenizer_config->text, tokenizer_config->file);
  const JsonNode config(json, tokenizer_config->file);
  const auto templates = config.find("chat_template");
  if (!templates) return std::nullopt;
  if (!templates->json().is_array()) {
    if (name != "default") return std::nullopt;
    return FolderText{templates->where(), *config.find_string("chat_template")};
  }
  for (std::size_t i = 0; i < templates->array().size(); ++i) {
    const JsonNode one = templates->item(i);
    if (one.require_string("name") == name) {
      return FolderText{one.where(), one.require_string("template")};
    }
  }
  return std::nullopt;
}

}  // namespace octet
