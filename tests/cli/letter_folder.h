// A Hugging Face folder of a few kilobytes that answers, for tests of the command line.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "support/test_models.h"

namespace octet {
inline namespace test_support {

// The small random llama with a tokenizer beside it: the letters are tokens 3 to 28, a space is 29.
class LetterFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("octet_folder_test_{}_{}", getpid(),
                          ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::copy(data_path("models/folders/llama_bf16"), folder_);
    Json tokenizer = {
        {"model",
         {{"type", "BPE"}, {"vocab", {{"?", 0}, {"\u0120", 29}}}, {"merges", Json::array()}}},
        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
        {"decoder", {{"type", "ByteLevel"}}},
        {"added_tokens", Json::array()}};
    for (char letter = 'a'; letter <= 'z'; ++letter) {
      tokenizer["model"]["vocab"][std::string(1, letter)] = letter - 'a' + 3;
    }
    for (const auto& [text, id] : {std::pair("<s>", 1), std::pair("</s>", 2)}) {
      tokenizer["added_tokens"].push_back({{"id", id},
                                           {"content", text},
                                           {"special", true},
                                           {"single_word", false},
                                           {"lstrip", false},
                                           {"rstrip", false},
                                           {"normalized", false}});
    }
    write("tokenizer.json", tokenizer);
    write("tokenizer_config.json",
          {{"bos_token", "<s>"},
           {"eos_token", "</s>"},
           {"chat_template", "<s>{% for m in messages %}{{ m.content }} {% endfor %}"}});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const Json& value) const {
    std::ofstream(folder_ / name) << dump_json(value);
  }

  void write_text(const std::string& name, std::string_view text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::string read_text(const std::string& name) const {
    return read_file((folder_ / name).string());
  }
  Json read(const std::string& name) const { return parse_json(read_text(name), name); }

  std::filesystem::path folder_;
};

}  // namespace test_support
}  // namespace octet
