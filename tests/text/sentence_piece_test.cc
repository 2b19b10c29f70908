// BPE over characters, as SentencePiece's vocabularies in GGUF files state it.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "text/byte_pair_tokenizer.h"
#include "text/detokenizer.h"
#include "text/tokenizer_fixtures.h"

namespace octet {
namespace {

using Tokens = std::vector<TokenId>;

constexpr TokenId first_byte = 3;
constexpr TokenId first_piece = first_byte + 256;  // ▁, a, b, ab, ▁a, aa, aaa
constexpr TokenId space = first_piece;
constexpr TokenId a = first_piece + 1;
constexpr TokenId b = first_piece + 2;
constexpr TokenId ab = first_piece + 3;
constexpr TokenId space_a = first_piece + 4;
constexpr TokenId aa = first_piece + 5;
constexpr TokenId aaa = first_piece + 6;
constexpr TokenId two_spaces = first_piece + 7;  // user-defined, as GGUF writes it
constexpr TokenId tool = first_piece + 8;        // user-defined, of the protocol

BytePairTables piece_tables() {
  BytePairTables tables;
  tables.source = "pieces.gguf";
  tables.model = "llama";
  tables.tokens = {"<unk>", "<s>", "</s>"};
  tables.token_types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    tables.tokens.push_back(token_of_byte(static_cast<unsigned char>(byte)));
    tables.token_types.push_back(6);
  }
  tables.scores.assign(tables.tokens.size(), 0.0);
  for (const char* piece : {"▁", "a", "b", "ab", "▁a", "aa", "aaa"}) {
    tables.tokens.emplace_back(piece);
    tables.token_types.push_back(1);
  }
  tables.scores.insert(tables.scores.end(), {-10, -11, -12, -3, -2, -4, -5});
  for (const char* added : {"  ", "<tool>"}) {
    tables.tokens.emplace_back(added);
    tables.token_types.push_back(4);
    tables.scores.push_back(-1000);
  }
  tables.bos_token_id = 1;
  tables.eos_token_id = 2;
  return tables;
}

TEST(SentencePiece, MergesByScore) {
  BytePairTables tables = piece_tables();
  tables.add_space_prefix = false;
  const BytePairTokenizer tokenizer(std::move(tables));
  EXPECT_EQ(tokenizer.encode("ab", SpecialText::literal), (Tokens{ab}));
  EXPECT_EQ(tokenizer.encode(" ab", SpecialText::literal), (Tokens{space_a, b}));
  EXPECT_EQ(tokenizer.encode("aab", SpecialText::literal), (Tokens{a, ab}));
  // Of one score the longer left part: aa + a, not a + aa, though both make aaa.
  EXPECT_EQ(tokenizer.encode("aaaa", SpecialText::literal), (Tokens{aa, aa}));
  EXPECT_EQ(tokenizer.encode("aaa", SpecialText::literal), (Tokens{aaa}));
}

TEST(SentencePiece, PutsASpaceBeforeEachTextBetweenTokens) {
  const BytePairTokenizer tokenizer(piece_tables());
  EXPECT_TRUE(tokenizer.strips_leading_space());
  EXPECT_EQ(tokenizer.encode("ab", SpecialText::literal), (Tokens{space_a, b}));
  EXPECT_EQ(tokenizer.encode("", SpecialText::literal), (Tokens{}));
  EXPECT_EQ(tokenizer.encode("a</s>a", SpecialText::parse), (Tokens{space_a, 2, space_a}));
  EXPECT_EQ(tokenizer.decode({space_a, b}), "ab");
  EXPECT_EQ(tokenizer.decode({1, space_a, b}), "ab");
  EXPECT_EQ(tokenizer.decode({1, space_a, b}, true), "<s> ab");
  EXPECT_EQ(tokenizer.encode(std::vector<PromptPiece>{{"<s>a", false}, {"b<s>", true}}).front(), 1);
  EXPECT_EQ(tokenizer.encode(std::vector<PromptPiece>{{"<s>a", false}, {"b", true}}),
            (Tokens{1, space_a, b}));
}

TEST(SentencePiece, FallsBackToBytes) {
  BytePairTables tables = piece_tables();
  tables.add_space_prefix = false;
  const BytePairTokenizer tokenizer(std::move(tables));
  EXPECT_EQ(tokenizer.encode("é\t", SpecialText::literal),
            (Tokens{first_byte + 0xC3, first_byte + 0xA9, first_byte + 9}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("aé\n😀b", SpecialText::literal)), "aé\n😀b");
  EXPECT_EQ(tokenizer.token_bytes(first_byte + 10), "\n");
  EXPECT_EQ(tokenizer.token_bytes(space_a), " a");
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(first_byte + 0xC3), "");
  EXPECT_EQ(detokenizer.push(first_byte + 0xA9), "é");
}

TEST(SentencePiece, FusesWhatHasNoBytes) {
  BytePairTables tables = piece_tables();
  tables.add_space_prefix = false;
  tables.tokens[first_byte + 0xC3] = "unused";
  tables.token_types[first_byte + 0xC3] = 5;
  const BytePairTokenizer tokenizer(std::move(tables));
  EXPECT_EQ(tokenizer.encode("aééa", SpecialText::literal), (Tokens{a, 0, a}));
}

TEST(SentencePiece, RunsOfSpacesAreTextAndToolsAreNot) {
  BytePairTables tables = piece_tables();
  tables.add_space_prefix = false;
  const BytePairTokenizer tokenizer(std::move(tables));
  EXPECT_EQ(tokenizer.token_text(two_spaces), "▁▁");
  EXPECT_EQ(tokenizer.token_bytes(two_spaces), "  ");
  EXPECT_EQ(tokenizer.encode("  a", SpecialText::literal), (Tokens{two_spaces, a}));
  EXPECT_EQ(tokenizer.encode("   a", SpecialText::literal), (Tokens{two_spaces, space_a}));
  EXPECT_EQ(tokenizer.encode("<tool>", SpecialText::parse), (Tokens{tool}));
  EXPECT_EQ(tokenizer.encode("<tool>", SpecialText::literal).size(), 6u);
  EXPECT_EQ(tokenizer.encode("</s>", SpecialText::literal).size(), 4u);
}

TEST(SentencePiece, BeginsTextWhereTheFileDoesNotSay) {
  BytePairTables tables = piece_tables();
  EXPECT_TRUE(BytePairTokenizer(std::move(tables)).adds_beginning_of_text());
  tables = piece_tables();
  tables.add_bos_token = false;
  EXPECT_FALSE(BytePairTokenizer(std::move(tables)).adds_beginning_of_text());
}

TEST(SentencePiece, BrokenTablesAreRefusedByName) {
  struct Broken {
    std::function<void(BytePairTables&)> break_it;
    ErrorKind kind;
    const char* message;
  };
  const Broken all[] = {
      {[](BytePairTables& t) { t.scores.pop_back(); }, ErrorKind::bad_input,
       "tokenizer.ggml.scores has 267 entries, expected 268 as tokenizer.ggml.tokens has."},
      {[](BytePairTables& t) { t.scores[7] = std::numeric_limits<double>::infinity(); },
       ErrorKind::bad_input, "tokenizer.ggml.scores[7] is inf, expected a finite number."},
      {[](BytePairTables& t) { t.tokens[5] = "<0x2>"; }, ErrorKind::bad_input,
       "tokenizer.ggml.tokens[5] is '<0x2>', expected <0x00> to <0xFF> for a byte."},
      {[](BytePairTables& t) { t.tokens[a] = std::string(257, 'a'); }, ErrorKind::bad_input,
       "tokenizer.ggml.tokens[260] has 257 bytes, expected at most 256."},
      {[](BytePairTables& t) { t.unknown_token_id = 268; }, ErrorKind::bad_input,
       "tokenizer.ggml.unknown_token_id is 268, but the vocabulary has 268 tokens."},
      {[](BytePairTables& t) { t.pre_tokenizer = "odd"; }, ErrorKind::unsupported,
       "tokenizer.ggml.pre is 'odd', but octet knows 'default' only for the model 'llama'"},
      {[](BytePairTables& t) { t.model = "t5"; }, ErrorKind::unsupported,
       "tokenizer.ggml.model is 't5', but octet reads 'gpt2', 'llama' and 'gemma4' only"},
  };
  for (const Broken& broken : all) {
    BytePairTables tables = piece_tables();
    broken.break_it(tables);
    EXPECT_EQ(error_message(broken.kind, [&] { BytePairTokenizer(std::move(tables)); }),
              std::string("pieces.gguf: ") + broken.message);
  }
}

}  // namespace
}  // namespace octet
