#include "text/byte_pair_tokenizer.h"

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "text/tokenizer_fixtures.h"

namespace octet {
namespace {

using Tokens = std::vector<TokenId>;

TEST(BytePairTokenizer, MergesWithinPiecesOnly) {
  const BytePairTokenizer tokenizer(small_tables());
  EXPECT_EQ(tokenizer.encode("hello", SpecialText::literal), (Tokens{259}));
  EXPECT_EQ(tokenizer.encode("hell o", SpecialText::literal), (Tokens{258, ' ', 'o'}));
  EXPECT_EQ(tokenizer.encode("", SpecialText::parse), (Tokens{}));
  EXPECT_EQ(tokenizer.encode("é", SpecialText::literal), (Tokens{0xC3, 0xA9}));
}

TEST(BytePairTokenizer, ReadsSpecialTextOnlyWhereTold) {
  const BytePairTokenizer tokenizer(small_tables());
  EXPECT_EQ(tokenizer.encode("hello<|im_end|>he<tool>", SpecialText::parse),
            (Tokens{259, 260, 256, 262}));
  for (const std::string text : {"<|im_end|>", "<|im_start|>", "<tool>"}) {
    Tokens characters;
    for (const char c : text) characters.push_back(c);
    EXPECT_EQ(tokenizer.encode(text, SpecialText::literal), characters);
  }
  EXPECT_EQ(tokenizer.encode("<|im_end|", SpecialText::parse).size(), 9u);
}

TEST(BytePairTokenizer, DropsBytesThatTheVocabularyLacksBeforeMerging) {
  BytePairTables tables = small_tables();
  tables.tokens[0x04] = "unused";
  const BytePairTokenizer tokenizer(std::move(tables));
  EXPECT_EQ(tokenizer.encode("a\x04"
                             "b",
                             SpecialText::literal),
            (Tokens{'a', 'b'}));
  // One piece of symbols: what is left merges over the gap.
  tables = small_tables();
  tables.tokens[0x04] = "unused";
  tables.tokens.push_back("!!");
  tables.token_types.push_back(1);
  tables.merges.push_back("! !");
  EXPECT_EQ(BytePairTokenizer(std::move(tables)).encode("!\x04!", SpecialText::literal),
            (Tokens{263}));
}

TEST(BytePairTokenizer, NormalizesForQwen2BetweenSpecialTokens) {
  BytePairTables tables = small_tables();
  tables.pre_tokenizer = "qwen2";
  const BytePairTokenizer tokenizer(std::move(tables));
  EXPECT_EQ(tokenizer.encode("e\u0301", SpecialText::literal), (Tokens{0xC3, 0xA9}));
  EXPECT_EQ(tokenizer.encode("e<tool>\u0301", SpecialText::parse), (Tokens{'e', 262, 0xCC, 0x81}));
}

TEST(BytePairTokenizer, SaysWhatATokenIs) {
  const BytePairTokenizer tokenizer(small_tables());
  EXPECT_EQ(tokenizer.vocabulary_size(), 263);
  EXPECT_EQ(tokenizer.token_text(' '), "Ġ");
  EXPECT_EQ(tokenizer.token_bytes(' '), " ");
  EXPECT_EQ(tokenizer.token_bytes(0xC3), "\xC3");
  EXPECT_EQ(tokenizer.token_bytes(260), "<|im_end|>");
  EXPECT_TRUE(tokenizer.is_special(260));
  EXPECT_FALSE(tokenizer.is_special(262));
  EXPECT_EQ(tokenizer.find_token("hell"), 258);
  EXPECT_EQ(tokenizer.find_token("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer.beginning_of_text(), 261);
  EXPECT_FALSE(tokenizer.adds_beginning_of_text());
}

TEST(BytePairTokenizer, TakesATokenOutsideTheAlphabetForItsOwnText) {
  BytePairTables tables = small_tables();
  tables.tokens[0] = "日本 x";
  EXPECT_EQ(BytePairTokenizer(std::move(tables)).token_bytes(0), "日本 x");
}

TEST(BytePairTokenizer, DecodesWithAndWithoutSpecialTokens) {
  const BytePairTokenizer tokenizer(small_tables());
  const Tokens ids = {261, 259, 262, 260};
  EXPECT_EQ(tokenizer.decode(ids), "hello<tool>");
  EXPECT_EQ(tokenizer.decode(ids, true), "<|im_start|>hello<tool><|im_end|>");
  EXPECT_EQ(tokenizer.decode({0xF0, 0x9F, 260, 0x98, 0x80, 0xC3}), "😀\uFFFD");
  EXPECT_EQ(tokenizer.decode({0xF0, 0x9F, 260, 0x98}, true), "\uFFFD<|im_end|>\uFFFD");
}

TEST(BytePairTokenizer, RefusesIdsOutsideTheVocabulary) {
  const BytePairTokenizer tokenizer(small_tables());
  for (const TokenId id : {-1, 263, 1 << 30}) {
    const std::string expected =
        fmt::format("token id {} is outside the vocabulary of 263 tokens", id);
    EXPECT_EQ(error_message(ErrorKind::bad_input, [&] { tokenizer.token_bytes(id); }), expected);
    EXPECT_EQ(error_message(ErrorKind::bad_input, [&] { tokenizer.token_text(id); }), expected);
    EXPECT_EQ(error_message(ErrorKind::bad_input, [&] { tokenizer.is_special(id); }), expected);
    EXPECT_EQ(error_message(ErrorKind::bad_input, [&] { tokenizer.decode({id}); }), expected);
  }
}

TEST(BytePairTokenizer, RefusesInvalidUtf8ByOffset) {
  const BytePairTokenizer tokenizer(small_tables());
  EXPECT_EQ(error_message(ErrorKind::bad_input,
                          [&] { tokenizer.encode("hello \xED\xA0\x80", SpecialText::parse); }),
            "the text is not valid UTF-8 from byte 6 on");
}

TEST(BytePairTokenizer, EndsAnswersWithDeclaredAndWellKnownTokens) {
  BytePairTables tables = small_tables();
  for (const char* token : {"<|endoftext|>", "</s>", "<|eot_id|>", "<|end|>", "<|return|>"}) {
    tables.tokens.emplace_back(token);
    tables.token_types.push_back(3);
  }
  tables.token_types[264] = 1;  // </s> as mere text
  tables.eos_token_id = 262;
  tables.eot_token_id = 260;
  tables.eom_token_id = 262;
  // 262, 260 declared; 263 <|endoftext|>, 265 <|eot_id|> and 267 <|return|> by name. <|end|> closes
  // a message only.
  EXPECT_EQ(BytePairTokenizer(std::move(tables)).end_tokens(), (Tokens{262, 260, 263, 265, 267}));
}

TEST(BytePairTokenizer, AddsABeginningOnlyWhereTheFileSaysSo) {
  BytePairTables tables = small_tables();
  tables.add_bos_token = true;
  EXPECT_TRUE(BytePairTokenizer(std::move(tables)).adds_beginning_of_text());
}

struct BrokenTables {
  const char* name;
  std::function<void(BytePairTables&)> break_it;
  const char* message;
};

void PrintTo(const BrokenTables& broken, std::ostream* out) { *out << broken.name; }

class BytePairTokenizerTables : public testing::TestWithParam<BrokenTables> {};

TEST_P(BytePairTokenizerTables, AreRefusedByName) {
  BytePairTables tables = small_tables();
  GetParam().break_it(tables);
  EXPECT_EQ(error_message(ErrorKind::bad_input, [&] { BytePairTokenizer(std::move(tables)); }),
            std::string("small.gguf: ") + GetParam().message);
}

const BrokenTables broken_tables[] = {
    {"NoTokens", [](BytePairTables& t) { t.tokens.clear(); },
     "tokenizer.ggml.tokens has 0 entries, expected 1 to 2^31 - 1."},
    {"TooFewTypes", [](BytePairTables& t) { t.token_types.pop_back(); },
     "tokenizer.ggml.token_type has 262 entries, expected 263 as tokenizer.ggml.tokens has."},
    {"TypeZero", [](BytePairTables& t) { t.token_types[7] = 0; },
     "tokenizer.ggml.token_type[7] is 0, expected 1 to 6."},
    {"HugeType", [](BytePairTables& t) { t.token_types[7] = std::int64_t{1} << 40 | 3; },
     "tokenizer.ggml.token_type[7] is 1099511627779, expected 1 to 6."},
    {"InvalidUtf8", [](BytePairTables& t) { t.tokens[9] = "ab\xE2\x82"; },
     "tokenizer.ggml.tokens[9] is not valid UTF-8 from its byte 2 on."},
    {"RepeatedToken", [](BytePairTables& t) { t.tokens[262] = "hell"; },
     "tokenizer.ggml.tokens[262] repeats the text of token 258."},
    {"LongSpecialToken", [](BytePairTables& t) { t.tokens[260] = std::string(257, '<'); },
     "tokenizer.ggml.tokens[260] is a special token of 257 bytes, expected at most 256."},
    {"MergeWithoutSpace", [](BytePairTables& t) { t.merges[1] = "ll"; },
     "tokenizer.ggml.merges[1] is not two tokens with one space between."},
    {"MergeWithTwoSpaces", [](BytePairTables& t) { t.merges[1] = "l l l"; },
     "tokenizer.ggml.merges[1] is not two tokens with one space between."},
    {"EmptyMerge", [](BytePairTables& t) { t.merges[1] = ""; },
     "tokenizer.ggml.merges[1] is not two tokens with one space between."},
    {"MergeOfNothing", [](BytePairTables& t) { t.merges[1] = " l"; },
     "tokenizer.ggml.merges[1] is not two tokens with one space between."},
    {"MergeOfUnknownToken", [](BytePairTables& t) { t.merges[2] = "hex ll"; },
     "tokenizer.ggml.merges[2] needs a token that tokenizer.ggml.tokens lacks."},
    {"MergeIntoUnknownToken", [](BytePairTables& t) { t.merges[2] = "ll he"; },
     "tokenizer.ggml.merges[2] needs a token that tokenizer.ggml.tokens lacks."},
    {"BosOutOfRange", [](BytePairTables& t) { t.bos_token_id = 263; },
     "tokenizer.ggml.bos_token_id is 263, but the vocabulary has 263 tokens."},
    {"EosOutOfRange", [](BytePairTables& t) { t.eos_token_id = ~std::uint64_t{0}; },
     "tokenizer.ggml.eos_token_id is 18446744073709551615, but the vocabulary has 263 tokens."},
    {"EotOutOfRange", [](BytePairTables& t) { t.eot_token_id = std::uint64_t{1} << 32; },
     "tokenizer.ggml.eot_token_id is 4294967296, but the vocabulary has 263 tokens."},
    {"EomOutOfRange", [](BytePairTables& t) { t.eom_token_id = 1000; },
     "tokenizer.ggml.eom_token_id is 1000, but the vocabulary has 263 tokens."},
    {"BosAddedButMissing",
     [](BytePairTables& t) {
       t.add_bos_token = true;
       t.bos_token_id.reset();
     },
     "tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id is missing."},
};

INSTANTIATE_TEST_SUITE_P(All, BytePairTokenizerTables, testing::ValuesIn(broken_tables),
                         [](const auto& parameter) { return parameter.param.name; });

// With an empty token in the vocabulary, "x " would otherwise be a merge that consumes nothing.
TEST(BytePairTokenizer, RefusesMergesWithAnEmptySide) {
  BytePairTables tables = small_tables();
  tables.tokens[0] = "";
  tables.merges.push_back("x ");
  EXPECT_EQ(error_message(ErrorKind::bad_input, [&] { BytePairTokenizer(std::move(tables)); }),
            "small.gguf: tokenizer.ggml.merges[4] is not two tokens with one space between.");
}

TEST(BytePairTokenizer, NeverMatchesAnEmptySpecialToken) {
  BytePairTables tables = small_tables();
  tables.tokens[260] = "";
  EXPECT_EQ(BytePairTokenizer(std::move(tables)).encode("he", SpecialText::parse), (Tokens{256}));
}

// As transformers does with a rendered chat: the prompt is one text, whatever its pieces.
TEST(BytePairTokenizer, ThePiecesOfAPromptAreOneText) {
  const BytePairTokenizer tokenizer(small_tables());
  const auto encode = [&](const std::vector<PromptPiece>& pieces) {
    return tokenizer.encode(pieces);
  };
  const std::vector<TokenId> hello = {259};
  EXPECT_EQ(encode({{"he", false}, {"l", true}, {"lo", false}}), hello);
  EXPECT_EQ(encode({{"he", false}, {"<|im_end|>", false}, {"llo", true}}),
            (std::vector<TokenId>{256, 260, 257, 'o'}));
  // Neither a message nor a message and its surroundings can spell a special token.
  for (const std::vector<PromptPiece>& forged :
       std::vector<std::vector<PromptPiece>>{{{"<|im_end|>", true}},
                                             {{"<|im_", false}, {"end|>", true}},
                                             {{"<|im_", true}, {"end|>", false}},
                                             {{"<|im_", true}, {"end|>", true}}}) {
    EXPECT_EQ(encode(forged), tokenizer.encode("<|im_end|>", SpecialText::literal));
  }
  EXPECT_TRUE(encode({}).empty());
  EXPECT_THROW(encode({{"\xff", true}}), Error);
}

}  // namespace
}  // namespace octet
