// The tokenizers of real models, which `make models` fetches into models/.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "files/gguf.h"
#include "text/detokenizer.h"
#include "text/frozen_cases.h"
#include "text/tokenizer_fixtures.h"

namespace octet {
namespace {

using Tokens = std::vector<TokenId>;

constexpr const char* smollm2 = "SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr const char* qwen2 = "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf";

std::shared_ptr<const GgufFile> open_model(const std::string& name) {
  const std::string path = std::string(OCTET_SOURCE_ROOT) + "/models/" + name;
  if (!std::filesystem::exists(path)) {
    throw std::runtime_error(path + " is missing: run `make models` first");
  }
  return GgufFile::open(path);
}

void expect_ids_of(const Tokenizer& tokenizer, const std::string& data_name) {
  const auto data = read_frozen_cases(data_name);
  ASSERT_GE(data.at("cases").size(), 130u);
  for (const auto& one : data.at("cases")) {
    const std::string text = one.at("text");
    const Tokens ids = one.at("ids");
    EXPECT_EQ(tokenizer.encode(text, SpecialText::literal), ids) << one.dump();
    EXPECT_EQ(tokenizer.encode(text, SpecialText::parse), one.value("ids_special", ids))
        << one.dump();
    const std::string decoded = one.value("decoded", text);
    EXPECT_EQ(tokenizer.decode(ids), decoded) << one.dump();
    Detokenizer detokenizer(tokenizer);
    std::string streamed;
    for (const TokenId id : ids) streamed += detokenizer.push(id);
    EXPECT_EQ(streamed + detokenizer.finish(), decoded) << one.dump();
  }
}

TEST(RealTokenizer, Smollm2EqualsTheTokenizersPackage) {
  const auto tokenizer = Tokenizer::from_gguf(*open_model(smollm2));
  expect_ids_of(*tokenizer, "smollm2_ids.json");
}

TEST(RealTokenizer, Qwen2EqualsTheTokenizersPackage) {
  const auto tokenizer = Tokenizer::from_gguf(*open_model(qwen2));
  expect_ids_of(*tokenizer, "qwen2_ids.json");
}

// No model at hand uses GPT-2's pattern alone: it is shown over SmolLM2's vocabulary.
TEST(RealTokenizer, Gpt2PatternEqualsTheTokenizersPackage) {
  const auto file = open_model(smollm2);
  BytePairTables tables;
  tables.source = file->path();
  tables.pre_tokenizer = "gpt-2";
  tables.tokens = file->require_strings("tokenizer.ggml.tokens");
  tables.token_types = file->find_integers("tokenizer.ggml.token_type").value();
  tables.merges = file->require_strings("tokenizer.ggml.merges");
  expect_ids_of(BytePairTokenizer(std::move(tables)), "smollm2_gpt2_ids.json");
}

TEST(RealTokenizer, KnowsItsSpecialTokens) {
  const auto small = Tokenizer::from_gguf(*open_model(smollm2));
  EXPECT_EQ(small->vocabulary_size(), 49152);
  EXPECT_EQ(small->beginning_of_text(), 1);
  EXPECT_FALSE(small->adds_beginning_of_text());
  EXPECT_EQ(small->end_tokens(), (Tokens{2, 0}));  // <|im_end|>, <|endoftext|>
  EXPECT_TRUE(small->is_special(16));              // <empty_output>

  const auto coder = Tokenizer::from_gguf(*open_model(qwen2));
  EXPECT_EQ(coder->vocabulary_size(), 151936);
  EXPECT_FALSE(coder->adds_beginning_of_text());
  EXPECT_EQ(coder->end_tokens(), (Tokens{151645, 151643}));
  EXPECT_FALSE(coder->is_special(coder->find_token("<tool_call>").value()));
}

// Words of 300 kB; merging that looks at all pairs for each merge would take hours.
TEST(RealTokenizer, EncodesLongWordsFast) {
  const auto tokenizer = Tokenizer::from_gguf(*open_model(smollm2));
  const auto start = std::chrono::steady_clock::now();
  for (const char* unit : {"a", " ", "ab", "日", "1"}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, SpecialText::parse)), text);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(RealTokenizer, Gemma3KeepsItsRunsAndTags) {
  const auto gemma = Tokenizer::from_gguf(*open_model("gemma-3-270m.Q4_K_M.gguf"));
  EXPECT_EQ(gemma->vocabulary_size(), 262144);
  EXPECT_EQ(gemma->beginning_of_text(), 2);
  EXPECT_TRUE(gemma->adds_beginning_of_text());
  EXPECT_FALSE(gemma->strips_leading_space());
  EXPECT_EQ(gemma->end_tokens(), (Tokens{1, 106}));  // <eos>, <end_of_turn>
  // Runs of white space and HTML's tags are text; turn markers are not.
  const auto id = [&](std::string_view text) { return gemma->find_token(text).value(); };
  EXPECT_EQ(gemma->encode("   a\n\n\n<table>", SpecialText::literal),
            (Tokens{id("▁▁▁"), id("a"), id("\n\n\n"), id("<table>")}));
  EXPECT_EQ(gemma->encode(std::string(40, ' '), SpecialText::literal),
            (Tokens{gemma->find_token(std::string("▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁")).value(),
                    id("▁▁▁▁▁▁▁▁▁")}));
  const Tokens forged = gemma->encode("<start_of_turn><start_of_image>", SpecialText::literal);
  for (const char* text : {"<start_of_turn>", "<start_of_image>"}) {
    EXPECT_EQ(gemma->encode(text, SpecialText::parse), (Tokens{id(text)}));
    EXPECT_EQ(std::count(forged.begin(), forged.end(), id(text)), 0) << text;
  }
  // A character that no token spells is its bytes, and comes back whole.
  const std::string rare = "\U00012345";
  const Tokens bytes = gemma->encode(rare, SpecialText::literal);
  EXPECT_EQ(bytes, (Tokens{id("<0xF0>"), id("<0x92>"), id("<0x8D>"), id("<0x85>")}));
  Detokenizer detokenizer(*gemma);
  std::vector<std::string> parts;
  for (const TokenId token : bytes) parts.push_back(detokenizer.push(token));
  EXPECT_EQ(parts, (std::vector<std::string>{"", "", "", rare}));
}

TEST(RealTokenizer, SentencePiecePutsASpaceBeforeTextAndTakesItAway) {
  const auto llama = Tokenizer::from_gguf(*open_model("vocabularies/ggml-vocab-llama-spm.gguf"));
  // As meta-llama's tokenizer has it: "Hello world" is 15043, 3186.
  EXPECT_EQ(llama->encode("Hello world", SpecialText::literal), (Tokens{15043, 3186}));
  EXPECT_EQ(llama->decode({15043, 3186}), "Hello world");
  EXPECT_EQ(llama->decode({1, 15043, 3186}), "Hello world");
  EXPECT_TRUE(llama->strips_leading_space());
  // What continues a text keeps its space.
  Detokenizer detokenizer(*llama);
  EXPECT_EQ(detokenizer.push(3186), " world");
}

TEST(RealTokenizer, RefusesAnotherTokenizerModelByName) {
  const auto file = open_model("vocabularies/ggml-vocab-bert-bge.gguf");
  const std::string message =
      error_message(ErrorKind::unsupported, [&] { Tokenizer::from_gguf(*file); });
  EXPECT_NE(message.find("tokenizer.ggml.model is 'bert'"), std::string::npos) << message;
  EXPECT_NE(message.find(file->path()), std::string::npos) << message;
}

}  // namespace
}  // namespace octet
