#include "text/pre_tokenizer.h"

#include <chrono>
#include <string>
#include <vector>

#include "text/frozen_cases.h"
#include "text/gguf_pre_tokenizer.h"
#include "text/tokenizer_fixtures.h"

namespace octet {
namespace {

std::vector<std::size_t> piece_ends(const std::string& pattern, std::string_view text) {
  std::vector<PreTokenizer::Piece> pieces;
  make_pre_tokenizer(find_gguf_pre_tokenizer(pattern, "test.gguf")).split(text, pieces);
  std::vector<std::size_t> ends;
  for (const PreTokenizer::Piece& piece : pieces) {
    EXPECT_EQ(piece.begin, ends.empty() ? 0 : ends.back());
    ends.push_back(piece.end);
  }
  return ends;
}

std::vector<std::string> pieces(const std::string& pattern, std::string_view text) {
  std::vector<std::string> result;
  std::size_t begin = 0;
  for (const std::size_t end : piece_ends(pattern, text)) {
    result.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return result;
}

using Pieces = std::vector<std::string>;

class PreTokenizerPattern : public testing::TestWithParam<const char*> {};

TEST_P(PreTokenizerPattern, SplitsAsTheTokenizersPackage) {
  const auto data = read_frozen_cases("pieces.json");
  ASSERT_GE(data.at("cases").size(), 250u);
  for (const auto& one : data.at("cases")) {
    const std::string text = one.at("text");
    EXPECT_EQ(piece_ends(GetParam(), text), one.at(GetParam()).get<std::vector<std::size_t>>())
        << one.dump();
  }
}

// Long runs of one thing, or of two in turn, are where a backtracking or rescanning matcher takes
// minutes.
TEST_P(PreTokenizerPattern, TakesLinearTime) {
  const auto start = std::chrono::steady_clock::now();
  for (const char* unit : {"a", " ", "\n", "\t", "1", "!", "'", "日", "\u0301", "😀", " \n", "\t ",
                           "' ", "a ", "\r!", "\u00a0", "'l", " 1"}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    EXPECT_EQ(piece_ends(GetParam(), text).back(), text.size());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

INSTANTIATE_TEST_SUITE_P(All, PreTokenizerPattern, testing::Values("gpt-2", "smollm", "qwen2"),
                         [](const auto& parameter) {
                           const std::string name = parameter.param;
                           return name == "gpt-2" ? "gpt2" : name;
                         });

TEST(PreTokenizer, KeepsThePatternsApart) {
  const std::string text = "DON'T  pay\n\n 1234 $5!\n";
  EXPECT_EQ(pieces("gpt-2", text),
            (Pieces{"DON", "'", "T", " ", " pay", "\n\n", " 1234", " $", "5", "!", "\n"}));
  EXPECT_EQ(pieces("smollm", text), (Pieces{"DON", "'", "T", " ", " pay", "\n\n ", "1", "2", "3",
                                            "4", " $", "5", "!", "\n"}));
  EXPECT_EQ(pieces("qwen2", text),
            (Pieces{"DON", "'T", " ", " pay", "\n\n", " ", "1", "2", "3", "4", " $", "5", "!\n"}));
}

TEST(PreTokenizer, FoldsTheLongSOnlyForQwen2) {
  EXPECT_EQ(pieces("qwen2", "x'ſy"), (Pieces{"x", "'ſ", "y"}));
  EXPECT_EQ(pieces("gpt-2", "x'ſy"), (Pieces{"x", "'", "ſy"}));
}

TEST(PreTokenizer, IsolatesNumbersYoungerThanTheRegularExpressions) {
  EXPECT_EQ(pieces("smollm", "a\U00011DE0\U00011DE1's"),
            (Pieces{"a", "\U00011DE0", "\U00011DE1", "'s"}));
  EXPECT_EQ(pieces("gpt-2", "a\U00011DE0\U00011DE1's"),
            (Pieces{"a", "\U00011DE0\U00011DE1'", "s"}));
}

TEST(PreTokenizer, NormalizesForQwen2Only) {
  EXPECT_TRUE(find_gguf_pre_tokenizer("qwen2", "m.gguf").normalizes_nfc);
  EXPECT_TRUE(find_gguf_pre_tokenizer("deepseek-r1-qwen", "m.gguf").normalizes_nfc);
  EXPECT_EQ(pieces("deepseek-r1-qwen", "It's 12 x\n"), pieces("qwen2", "It's 12 x\n"));
  EXPECT_FALSE(find_gguf_pre_tokenizer("smollm", "m.gguf").normalizes_nfc);
  EXPECT_FALSE(find_gguf_pre_tokenizer("default", "m.gguf").normalizes_nfc);
}

// No matcher of its own: three patterns one after the other, run by PCRE2.
TEST(PreTokenizer, SplitsAsDeepSeekV3) {
  EXPECT_EQ(pieces("deepseek-v3", "Hello world 12345 你好!abc\n\n x"),
            (Pieces{"Hello", " world", " ", "123", "45", " ", "你好", "!abc", "\n\n", " x"}));
}

TEST(PreTokenizer, RefusesUnknownNamesByName) {
  const std::string message =
      error_message(ErrorKind::unsupported, [] { find_gguf_pre_tokenizer("no-such", "m.gguf"); });
  EXPECT_EQ(
      message,
      "m.gguf: tokenizer.ggml.pre is 'no-such', but octet splits text as one of 'gpt-2', "
      "'default', 'mpt', 'smollm', 'starcoder', 'refact', 'command-r', 'llama-bpe', 'llama3', "
      "'qwen2', 'deepseek-r1-qwen', 'qwen35', 'gpt-4o', 'kimi-k2', 'deepseek-v3' only");
}

}  // namespace
}  // namespace octet
