// octet eval needle as its users meet it.
#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/run_program.h"
#include "support/temporary_folder.h"
#include "support/test_models.h"

namespace octet {
namespace {

class NeedleCliTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
    const std::string command = fmt::format(
        "python3 -B {}/tools/make_needle_model.py {} --kv-heads 1 --group 2 --context 4096",
        OCTET_SOURCE_ROOT, model_);
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  ProgramResult run(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"eval", "needle", "--model", model_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_octet(arguments);
  }
  void expect_refused(const std::vector<std::string>& more, const std::string& named) const {
    const ProgramResult result = run(more);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_NE(result.err.find(named), std::string::npos) << result.err;
  }

  TemporaryFolder folder_;
  std::string model_ = folder_ / "model";
};

TEST_F(NeedleCliTest, ReportsByLengthAndDepth) {
  const ProgramResult result =
      run({"--lengths", "512,1024", "--depths", "0,33.5", "--samples", "3", "--batch", "4",
           "--kv-cache-dtype", "fp8", "--attention-accumulation", "single", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json report = parse_json(result.out, "the output");
  EXPECT_EQ(report["attention_accumulation"], "single");
  EXPECT_EQ(report["cache"].get<std::string>().find("fp8"), 0u);
  ASSERT_EQ(report["cells"].size(), 4u);
  EXPECT_EQ(report["cells"][3]["length"], 1024);
  EXPECT_EQ(report["cells"][3]["depth"], 33.5);
  EXPECT_EQ(report["cells"][3]["asked"], 3);
  EXPECT_EQ(report["cells"][3]["right"], 3);
  EXPECT_GT(report["cells"][3]["probability"].get<double>(), 0.05);
  const ProgramResult text = run({"--lengths", "512", "--samples", "1"});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("    512     100    100    100    100    100  100.0\n"),
            std::string::npos)
      << text.out;
}

TEST_F(NeedleCliTest, RefusesByName) {
  expect_refused({}, "--lengths");
  expect_refused({"--lengths", "512,"}, "--lengths '512,'");
  expect_refused({"--lengths", "0"}, "--lengths '0'");
  expect_refused({"--lengths", "8192"}, "--lengths 8192");
  expect_refused({"--lengths", "70"}, "--lengths 70");
  expect_refused({"--lengths", "512", "--depths", "0,101"}, "--depths '0,101'");
  expect_refused({"--lengths", "512", "--depths", "nan"}, "--depths 'nan'");
  expect_refused({"--lengths", "512", "--samples", "451"}, "--samples");
  expect_refused({"--lengths", "512", "--prefill-chunk", "100"}, "--prefill-chunk 100");
  expect_refused({"--lengths", "512", "--attention-accumulation", "single"},
                 "--attention-accumulation single");
  const ProgramResult small = run({"--lengths", "512", "--kv-cache-memory-bytes", "1000"});
  EXPECT_EQ(small.status, 1) << small.out;
  EXPECT_NE(small.err.find("1000 bytes"), std::string::npos) << small.err;
}

}  // namespace
}  // namespace octet
