// tokenizer.json and tokenizer_config.json; tools/oracle/tokenizer_json_cases.py made the files and
// what the `tokenizers` package makes of texts with them.
#include "text/tokenizer_json.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/frozen_cases.h"
#include "text/tokenizer_fixtures.h"

namespace octet {
namespace {

using Tokens = std::vector<TokenId>;

std::unique_ptr<Tokenizer> tokenizer_of(const Json& tokenizer, const Json& config = Json()) {
  TokenizerTexts texts;
  texts.tokenizer = {"tokenizer.json", tokenizer.dump()};
  if (!config.is_null()) texts.config = {"tokenizer_config.json", config.dump()};
  return tokenizer_from_json(texts);
}

const Json& frozen_files() {
  static const Json data = read_frozen_cases("tokenizer_json.json");
  return data.at("files");
}

const Json& file_named(std::string_view name) {
  for (const Json& file : frozen_files()) {
    if (file.at("name") == name) return file.at("tokenizer");
  }
  throw std::runtime_error("no such file in the test's data");
}

TEST(TokenizerJson, EqualsTheTokenizersPackage) {
  ASSERT_GE(frozen_files().size(), 20u);
  for (const Json& file : frozen_files()) {
    SCOPED_TRACE(file.at("name").get<std::string>());
    const auto tokenizer = tokenizer_of(file.at("tokenizer"));
    ASSERT_GE(file.at("cases").size(), 15u);
    for (const Json& one : file.at("cases")) {
      const std::string text = one.at("text");
      const Tokens ids = one.at("ids");
      EXPECT_EQ(tokenizer->encode(text, SpecialText::parse), ids) << one.dump();
      EXPECT_EQ(tokenizer->encode(std::vector<PromptPiece>{{text, false}}), ids) << one.dump();
      EXPECT_EQ(tokenizer->decode(ids, true), one.value("decoded", text)) << one.dump();
    }
    EXPECT_EQ(tokenizer->adds_beginning_of_text(), !file.at("begins").is_null());
    if (!file.at("begins").is_null()) {
      EXPECT_EQ(tokenizer->beginning_of_text(), file.at("begins").get<TokenId>());
    }
  }
}

TEST(TokenizerJson, AUsersTextHoldsNoAddedTokens) {
  const auto tokenizer = tokenizer_of(file_named("added tokens"));
  for (const char* text : {"<a>", "<l>", "<r>", "<w>", "hellohello"}) {
    const TokenId id = tokenizer->find_token(text).value();
    const Tokens ids = tokenizer->encode(std::vector<PromptPiece>{{text, true}, {"<n>", true}});
    EXPECT_EQ(std::count(ids.begin(), ids.end(), id), 0) << text;
    EXPECT_EQ(tokenizer->encode(std::vector<PromptPiece>{{text, false}, {"x", true}}).front(), id);
  }
  // White space that a token takes is taken from the user's text as well.
  EXPECT_EQ(tokenizer->encode(std::vector<PromptPiece>{{"<r>\n", false}, {"  x", true}}),
            tokenizer->encode("<r>x", SpecialText::parse));
}

TEST(TokenizerJson, TheConfigurationSaysWhatBeginsAndEnds) {
  const Json& file = file_named("llama");
  const auto config = [](const char* text) { return Json::parse(text); };
  auto tokenizer = tokenizer_of(
      file, config(R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
                       "add_bos_token": true})"));
  EXPECT_EQ(tokenizer->beginning_of_text(), 1);
  EXPECT_TRUE(tokenizer->adds_beginning_of_text());
  EXPECT_EQ(tokenizer->end_tokens(), (Tokens{2}));
  EXPECT_TRUE(tokenizer->strips_leading_space());
  // What only the configuration adds.
  const TokenId next = tokenizer->vocabulary_size();
  Json more = config(R"({"added_tokens_decoder": {}})");
  more["added_tokens_decoder"][std::to_string(next)] = {{"content", "<end>"}, {"special", true}};
  tokenizer = tokenizer_of(file, more);
  EXPECT_EQ(tokenizer->encode("<end>", SpecialText::parse), (Tokens{next}));
  EXPECT_TRUE(tokenizer->is_special(next));
  // The configuration's word counts against the template's.
  tokenizer = tokenizer_of(file_named("template"), config(R"({"add_bos_token": false})"));
  EXPECT_FALSE(tokenizer->adds_beginning_of_text());

  TokenizerTexts texts;
  texts.tokenizer = {"tokenizer.json", file.dump()};
  texts.end_tokens = {7, 2};
  EXPECT_EQ(tokenizer_from_json(texts)->end_tokens(), (Tokens{7, 2}));
  texts.end_tokens = {100'000};
  EXPECT_NE(error_message(ErrorKind::bad_input, [&] { tokenizer_from_json(texts); }).find("100000"),
            std::string::npos);
}

struct BrokenJson {
  const char* file;
  std::function<void(Json&)> break_it;
  ErrorKind kind;
  const char* message;
};

TEST(TokenizerJson, RefusesByName) {
  const auto bad = ErrorKind::bad_input;
  const auto unsupported = ErrorKind::unsupported;
  const BrokenJson all[] = {
      {"llama", [](Json& t) { t.erase("model"); }, bad,
       "tokenizer.json: the key 'model' is missing"},
      {"llama", [](Json& t) { t["model"]["type"] = "Unigram"; }, unsupported,
       "tokenizer.json: model: octet does not know the model 'Unigram'"},
      {"llama", [](Json& t) { t["model"]["dropout"] = 0.5; }, unsupported,
       "tokenizer.json: model.dropout: octet encodes without dropout"},
      {"llama", [](Json& t) { t["model"]["end_of_word_suffix"] = "</w>"; }, unsupported,
       "tokenizer.json: model: octet does not know end_of_word_suffix"},
      {"llama", [](Json& t) { t["model"]["unk_token"] = "<none>"; }, bad,
       "tokenizer.json: model.unk_token: the vocabulary has no token '<none>'"},
      {"llama",
       [](Json& t) {
         t["model"]["merges"][3] = {"a", "q"};
       },
       bad, "tokenizer.json: model.merges[3]: needs a token that model.vocab lacks"},
      {"llama", [](Json& t) { t["model"]["merges"][3] = "abc"; }, bad,
       "tokenizer.json: model.merges[3]: expected two tokens, in a list or with one space between"},
      {"llama", [](Json& t) { t["model"]["vocab"]["far"] = 16'000'000; }, bad,
       "tokenizer.json: the id 16000000 is far beyond the 286 tokens that are listed"},
      {"llama",
       [](Json& t) {
         Json& list = t["normalizer"]["normalizers"];
         for (int i = 0; i < 63; ++i) list.push_back({{"type", "NFC"}});
       },
       unsupported, "tokenizer.json: normalizer.normalizers[64]: octet takes 64 steps at most"},
      {"llama",
       [](Json& t) { t["normalizer"]["normalizers"][1]["content"] = std::string(17, 'x'); },
       unsupported,
       "tokenizer.json: normalizer.normalizers[1]: content has 17 bytes, expected at most 16"},
      {"llama", [](Json& t) { t["model"]["vocab"]["far"] = -1; }, bad,
       "tokenizer.json: model.vocab: 'far' is no token id of at most 16777215"},
      {"llama", [](Json& t) { t["model"]["vocab"]["twice"] = 1; }, bad,
       "tokenizer.json: model.vocab: 'twice' has the id 1 of '<s>'"},
      {"llama", [](Json& t) { t["added_tokens"][1]["id"] = 9; }, bad,
       "tokenizer.json: added_tokens[1]: '<s>' has the id 9 of '<0x06>'"},
      {"llama", [](Json& t) { t["added_tokens"][1]["id"] = 0; }, bad,
       "tokenizer.json: added_tokens[1]: the id 0 is given twice"},
      {"llama", [](Json& t) { t["added_tokens"][1]["content"] = ""; }, bad,
       "tokenizer.json: added_tokens[1]: the content has 0 bytes, expected 1 to 256"},
      {"llama", [](Json& t) { t["normalizer"]["normalizers"][0]["type"] = "Nmt"; }, unsupported,
       "tokenizer.json: normalizer.normalizers[0]: octet does not know the normalizer 'Nmt'"},
      {"llama", [](Json& t) { t["decoder"]["decoders"][0]["type"] = "CTC"; }, unsupported,
       "tokenizer.json: decoder.decoders[0]: octet does not know with these settings the decoder "
       "'CTC'"},
      {"llama", [](Json& t) { t["decoder"] = nullptr; }, unsupported,
       "tokenizer.json: the decoder does not fit the pre_tokenizer: octet knows ByteLevel in both "
       "or "
       "neither"},
      {"byte level", [](Json& t) { t["pre_tokenizer"]["type"] = "Bert"; }, unsupported,
       "tokenizer.json: pre_tokenizer: octet does not know in this place the pre-tokenizer 'Bert'"},
      {"template", [](Json& t) { t["post_processor"]["processors"][1]["type"] = "Roberta"; },
       unsupported,
       "tokenizer.json: post_processor.processors[1]: octet does not know the post-processor "
       "'Roberta'"},
  };
  for (const BrokenJson& broken : all) {
    Json file = file_named(broken.file);
    broken.break_it(file);
    EXPECT_EQ(error_message(broken.kind, [&] { tokenizer_of(file); }), broken.message);
  }
}

Json with_pattern(const char* pattern) {
  Json file = file_named("split, isolated");
  file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern;
  return file;
}

TEST(TokenizerJson, RefusesPatternsThatItWouldReadOtherwise) {
  for (const char* pattern : {"[a[b]]", "[a&&b]", R"(\w+)", R"(\b)", R"(\h)", "(", "a{", "[a"}) {
    const Json file = with_pattern(pattern);
    if (std::string_view(pattern) == "a{") {
      EXPECT_NO_THROW(tokenizer_of(file));  // a brace by itself
      continue;
    }
    const std::string message = error_message(ErrorKind::unsupported, [&] { tokenizer_of(file); });
    const std::string start =
        "tokenizer.json: pre_tokenizer.pretokenizers[0].pattern: the pattern '";
    EXPECT_EQ(message.substr(0, start.size()), start);
  }
}

// Such a pattern takes exponential, or quadratic, time: it ends in an error, in bounded time.
TEST(TokenizerJson, PatternsThatBacktrackWithoutEndAreRefused) {
  const auto start = std::chrono::steady_clock::now();
  for (const char* pattern : {"(a+)+b", "(?:a|a)*b", "a*a*a*a*a*b"}) {
    const auto tokenizer = tokenizer_of(with_pattern(pattern));
    // With a b behind, so that PCRE2 cannot tell from its absence that nothing matches.
    const std::string text = std::string(3'000, 'a') + "!b";
    const std::string message =
        error_message(ErrorKind::bad_input, [&] { tokenizer->encode(text, SpecialText::literal); });
    EXPECT_NE(message.find("takes more steps than octet allows"), std::string::npos) << message;
    EXPECT_NE(message.find(pattern), std::string::npos) << message;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(TokenizerJson, FindsTheChatTemplate) {
  const FolderText jinja = {"m/chat_template.jinja", "{{ 1 }}"};
  const FolderText one = {"m/tokenizer_config.json", R"({"chat_template": "{{ 2 }}"})"};
  const FolderText named = {"m/tokenizer_config.json",
                            R"({"chat_template": [{"name": "default", "template": "{{ 3 }}"},
                                                  {"name": "tool_use", "template": "{{ 4 }}"}]})"};
  EXPECT_EQ(find_chat_template(jinja, one)->text, "{{ 1 }}");
  EXPECT_EQ(find_chat_template({}, one)->text, "{{ 2 }}");
  EXPECT_EQ(find_chat_template({}, named)->text, "{{ 3 }}");
  EXPECT_EQ(find_chat_template({}, named, "tool_use")->text, "{{ 4 }}");
  EXPECT_EQ(find_chat_template({}, named, "tool_use")->file,
            "m/tokenizer_config.json: chat_template[1]");
  EXPECT_FALSE(find_chat_template({}, named, "rag"));
  EXPECT_FALSE(find_chat_template({}, FolderText{"c", "{}"}));
  EXPECT_FALSE(find_chat_template({}, {}));
}

}  // namespace
}  // namespace octet
