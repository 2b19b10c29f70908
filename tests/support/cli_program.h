// The program in a folder of its own, as its users meet it.
#pragma once

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "support/run_program.h"
#include "support/test_models.h"

namespace octet {
inline namespace test_support {

inline const std::string tiny_llama = data_path("models/llama_mixed.gguf");
inline const std::string tiny_qwen = data_path("models/qwen2_biases.gguf");

class CliTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);  // a program that ends early closes its standard input
    folder_ = std::filesystem::temp_directory_path() /
              ("octet_cli_test_" + std::to_string(getpid()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  // Runs and expects exit status 2, nothing on standard output, and one line that holds `named`.
  static void expect_refused(const std::vector<std::string>& arguments, const std::string& named,
                             std::string_view input = {}) {
    const ProgramResult result = run_octet(arguments, input);
    std::string shown;
    for (const std::string& argument : arguments) shown += argument.substr(0, 60) + " ";
    EXPECT_EQ(result.status, 2) << shown << "\n" << result.err;
    EXPECT_EQ(result.out, "") << shown;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << shown << result.err;
    EXPECT_NE(result.err.find(named), std::string::npos) << shown << "\n" << result.err;
  }

  static std::vector<std::string> generate(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"generate", "--model", tiny_llama};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  std::filesystem::path folder_;
};

}  // namespace test_support
}  // namespace octet
