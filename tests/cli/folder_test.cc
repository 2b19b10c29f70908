// Hugging Face folders from the command line.
#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "cli/letter_folder.h"
#include "support/run_program.h"
#include "support/test_models.h"

namespace octet {
namespace {

class FolderCliTest : public LetterFolderTest {
 protected:
  Json generate(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"generate",     "--model", folder_.string(), "--json",
                                          "--max-tokens", "3",       "--ignore-eos"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_octet(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return parse_json(result.out, "the report");
  }
};

TEST_F(FolderCliTest, GenerateAnswersAsTheModelDoes) {
  const Json report =
      generate({"--prompt", "hi there", "--kv-cache-dtype", "float32", "--dtype", "float32"});
  const auto prompt = report["prompt_token_ids"].get<std::vector<TokenId>>();
  EXPECT_EQ(prompt, (std::vector<TokenId>{10, 11, 29, 22, 10, 7, 20, 7}));

  const std::shared_ptr<Model> model = load_model(Checkpoint::open(folder_.string()));
  const std::vector<float> logits = all_logits(model, prompt, TestOptions{});
  // Rows of the embedding past the tokenizer's 30 tokens are never chosen.
  const auto last = logits.end() - model->config().vocabulary_size;
  EXPECT_EQ(report["token_ids"][0].get<TokenId>(), std::max_element(last, last + 30) - last);
}

TEST_F(FolderCliTest, TheFoldersTemplateWritesTheChat) {
  const Json report = generate({"--chat", "--prompt", "hi"});
  EXPECT_EQ(report["prompt_token_ids"].get<std::vector<TokenId>>(),
            (std::vector<TokenId>{1, 10, 11, 29}));
}

TEST_F(FolderCliTest, AFolderWithoutATokenizerIsRefused) {
  std::filesystem::remove(folder_ / "tokenizer.json");
  const ProgramResult result =
      run_octet({"generate", "--model", folder_.string(), "--prompt", "hi"});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("tokenizer.json"), std::string::npos) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

TEST_F(FolderCliTest, AFolderWithoutAChatTemplateIsToldWhereOneIsLookedFor) {
  write("tokenizer_config.json", {{"bos_token", "<s>"}});
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"chat"}, {"generate", "--chat", "--prompt", "hi"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--model", folder_.string()});
    const ProgramResult result = run_octet(arguments);
    EXPECT_EQ(result.status, 2);
    EXPECT_NE(result.err.find("chat_template.jinja, or chat_template in tokenizer_config.json"),
              std::string::npos)
        << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST_F(FolderCliTest, MoreTokensThanTheEmbeddingHasRowsAreRefused) {
  Json tokenizer = read("tokenizer.json");
  for (int id = 30; id < 70; ++id) tokenizer["model"]["vocab"][fmt::format("q{}", id)] = id;
  write("tokenizer.json", tokenizer);
  const ProgramResult result =
      run_octet({"generate", "--model", folder_.string(), "--prompt", "hi"});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("the embedding has 64 rows"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace octet
