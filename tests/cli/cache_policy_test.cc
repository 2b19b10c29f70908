// The flags of the cache's policy, calibration and the accumulator's figures, as users meet them.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "files/safetensors_writer.h"
#include "files/write_file.h"
#include "support/run_program.h"
#include "support/test_models.h"

namespace octet {
namespace {

class CachePolicyCliTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("octet_cache_policy_" + std::to_string(getpid()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directory(folder_);
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
    text_ = (folder_ / "text").string();
    std::ofstream text(text_);
    for (int i = 0; i < 60; ++i) text << "The lamp was lit at dusk, " << i * 37 << " times. ";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  ProgramResult generate(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"generate", "--model",      model_, "--prompt",
                                          "A lamp.",  "--max-tokens", "4",    "--ignore-eos"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_octet(arguments);
  }
  Json cache_of(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = more;
    arguments.push_back("--json");
    const ProgramResult result = generate(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return parse_json(result.out, "the output")["kv_cache"];
  }
  void expect_refused(const std::vector<std::string>& more, const std::string& named) const {
    const ProgramResult result = generate(more);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_NE(result.err.find(named), std::string::npos) << result.err;
  }

  std::filesystem::path folder_;
  std::string text_;
  std::string model_ = data_path("models/llama_mixed.gguf");
};

TEST_F(CachePolicyCliTest, SkippedLayersAreReported) {
  const Json cache = cache_of({"--kv-cache-dtype", "fp8", "--kv-cache-dtype-skip-layers", "0,2"});
  EXPECT_EQ(cache["layers"]["bfloat16:bfloat16"], 2);
  EXPECT_EQ(cache["layers"]["fp8:fp8"], 1);
  EXPECT_EQ(cache_of({"--kv-cache-dtype", "fp8", "--kv-cache-dtype-skip-layers", "0",
                      "--kv-cache-dtype-skip-layers", "1"})["layers"]["fp8:fp8"],
            1);
  EXPECT_EQ(cache_of({"--kv-cache-dtype", "fp8", "--kv-cache-dtype-skip-layers", "0",
                      "1"})["layers"]["fp8:fp8"],
            1);
  expect_refused({"--kv-cache-dtype", "fp8", "--kv-cache-dtype-skip-layers", "3"}, "0 to 2");
  expect_refused({"--kv-cache-dtype", "fp8", "--kv-cache-dtype-skip-layers", "sliding_window"},
                 "no layer of the model has a sliding window");
  expect_refused({"--kv-cache-dtype", "fp8", "--kv-cache-dtype-skip-layers", "some"}, "some");
}

// Of gemma-3-270m's 18 layers (one KV head of 256) every sixth sees all keys.
TEST_F(CachePolicyCliTest, SkippingWindowsKeepsThemInBfloat16AndTakesTheBytesThatItShould) {
  const ProgramResult result = run_octet(
      {"generate", "--model", real_model_path("gemma-3-270m.Q4_K_M.gguf"), "--prompt", "A lamp.",
       "--max-tokens", "2", "--ignore-eos", "--kv-cache-dtype", "fp8", "--kv-cache-key-mean", "off",
       "--kv-cache-dtype-skip-layers", "sliding_window", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json cache = parse_json(result.out, "the output")["kv_cache"];
  EXPECT_EQ(cache["layers"]["bfloat16:bfloat16"], 15);
  EXPECT_EQ(cache["layers"]["fp8:fp8"], 3);
  // Two bytes an element of keys and values; one, and a scale of two bytes for each side.
  constexpr int bfloat16_layer = 2 * 256 * 2;
  constexpr int fp8_layer = 2 * (256 + 2);
  EXPECT_EQ(cache["bytes_per_token"], 15 * bfloat16_layer + 3 * fp8_layer);
  EXPECT_EQ(cache["bytes_used"], 64 * (15 * bfloat16_layer + 3 * fp8_layer));  // a page of each
}

TEST_F(CachePolicyCliTest, KeyMeansAreOnForDynamicScalesAndSaidAtStartUp) {
  EXPECT_NE(cache_of({"--kv-cache-dtype", "fp8"})["key_mean"].get<std::string>().find("built-in"),
            std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "octet" / "key_means"));
  EXPECT_EQ(cache_of({"--kv-cache-dtype", "fp8", "--kv-cache-key-mean", "off"})["key_mean"], "off");
  EXPECT_EQ(cache_of({"--kv-cache-dtype", "fp8", "--kv-cache-scales", "unit"})["key_mean"], "off");
  EXPECT_EQ(cache_of({})["key_mean"], "off");
  const ProgramResult result = generate({"--kv-cache-dtype", "int8:fp8", "--verbose"});
  EXPECT_EQ(result.err.find("cache  int8:fp8 x 3, scales dynamic, key means of "), 0u)
      << result.err;
  EXPECT_NE(result.err.find("layer  saturated  subnormal  not finite"), std::string::npos);
  expect_refused({"--kv-cache-dtype", "fp8", "--kv-cache-key-mean", "maybe"}, "maybe");
  expect_refused({"--kv-cache-dtype", "fp8", "--kv-cache-key-mean", model_},
                 "--kv-cache-key-mean: " + model_ + ": is no safetensors file");
  expect_refused({"--kv-cache-dtype", "fp8", "--kv-cache-scales", model_},
                 "--kv-cache-scales: " + model_ + ": is no safetensors file");
}

TEST_F(CachePolicyCliTest, InspectShowsEachLayersFormats) {
  const std::vector<std::string> arguments = {
      "inspect", "--model", model_, "--kv-cache-dtype", "int8:fp8", "--kv-cache-dtype-skip-layers",
      "1"};
  const ProgramResult text = run_octet(arguments);
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("keys int8 (dynamic), values fp8 (dynamic), key means"),
            std::string::npos)
      << text.out;
  EXPECT_NE(text.out.find("keys bfloat16, values bfloat16\n"), std::string::npos) << text.out;
  std::vector<std::string> as_json = arguments;
  as_json.push_back("--json");
  const Json layers = parse_json(run_octet(as_json).out, "the output")["kv_cache_layers"];
  ASSERT_EQ(layers.size(), 3u);
  EXPECT_EQ(layers[0]["key"]["dtype"], "int8");
  EXPECT_EQ(layers[0]["key_mean"], true);
  EXPECT_EQ(layers[1]["value"]["dtype"], "bfloat16");
  EXPECT_EQ(layers[1]["key_mean"], false);
  // Two layers of a byte an element and a scale of two bytes a side, one of two bytes an element:
  // of 2 KV heads of 16.
  constexpr int bytes_per_token = 2 * 2 * 2 * (16 + 2) + 2 * 2 * 16 * 2;
  EXPECT_EQ(parse_json(run_octet(as_json).out, "the output")["kv_cache_chosen"]["bytes_per_token"],
            bytes_per_token);
  EXPECT_EQ(
      run_octet({"inspect", "--model", model_, "--tensors", "--kv-cache-dtype", "fp9"}).status, 2);
}

TEST_F(CachePolicyCliTest, SingleLevelAccumulationIsRefusedOnTheCpu) {
  EXPECT_EQ(generate({"--attention-accumulation", "two-level"}).status, 0);
  expect_refused({"--attention-accumulation", "single"}, "the CPU adds up in float32");
  expect_refused({"--attention-accumulation", "triple"}, "not in {two-level,single}");
  const ProgramResult inspected =
      run_octet({"inspect", "--model", model_, "--attention-accumulation", "single"});
  EXPECT_EQ(inspected.status, 2) << inspected.out;
}

TEST_F(CachePolicyCliTest, CalibratedScalesAndMeansAreTakenUp) {
  const std::string output = (folder_ / "scales").string();
  for (const char* granularity : {"tensor", "head"}) {
    const ProgramResult result =
        run_octet({"calibrate", "--model", model_, "--text", text_, "-o", output, "--granularity",
                   granularity, "--include-query", "--means", "--max-tokens", "200"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("200 tokens read"), std::string::npos) << result.out;
    const Json cache = cache_of({"--kv-cache-dtype", "fp8", "--kv-cache-scales", output});
    EXPECT_EQ(cache["scales"], granularity);
    EXPECT_EQ(cache["key_mean"], "off");
    EXPECT_EQ(cache_of({"--kv-cache-dtype", "int8", "--kv-cache-key-mean", output})["key_mean"],
              output + "/key_means.safetensors");
    const Json config = parse_json(read_file(output + "/quantization_config.json"), "written");
    EXPECT_EQ(config["quantization_config"]["kv_cache_scheme"]["strategy"],
              std::string(granularity) == "head" ? "attn_head" : "tensor");
  }
  // Means of an earlier run are not left beside scales of another.
  const ProgramResult again =
      run_octet({"calibrate", "--model", model_, "--text", text_, "-o", output});
  EXPECT_EQ(again.status, 2);
  EXPECT_NE(again.err.find("key_means.safetensors': is of an earlier run"), std::string::npos)
      << again.err;
  EXPECT_EQ(run_octet({"calibrate", "--model", model_, "--text", text_}).status, 2);
  EXPECT_EQ(run_octet({"calibrate", "--model", model_, "--text", text_, "-o", text_}).status, 2);
}

// Three files of one run, or what was there before: a full disk (here a limit on a file's size) is
// no bad usage.
TEST_F(CachePolicyCliTest, CalibrateWritesAllItsFilesOrNone) {
  const std::string output = (folder_ / "scales").string();
  const std::vector<std::string> arguments = {"calibrate",    "--model", model_, "--text",
                                              text_,          "-o",      output, "--means",
                                              "--max-tokens", "100"};
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  constexpr rlim_t most = 700;  // room for scales and configuration, not for means
  const rlimit little = {most, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  const ProgramResult limited = run_octet(arguments);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(limited.status, 1) << limited.err;
  EXPECT_NE(limited.err.find("key_means.safetensors: cannot be written"), std::string::npos)
      << limited.err;
  EXPECT_TRUE(std::filesystem::is_empty(output));
  ASSERT_EQ(run_octet(arguments).status, 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(output), {}), 3);
  EXPECT_LT(std::filesystem::file_size(output + "/kv_scales.safetensors"), most);
  EXPECT_GT(std::filesystem::file_size(output + "/key_means.safetensors"), most);
}

TEST_F(CachePolicyCliTest, TextsThatHoldNothingAreNamed) {
  const std::string empty = (folder_ / "empty").string();
  std::ofstream(empty).close();
  const std::string output = (folder_ / "scales").string();
  const auto expect_error = [&](const std::vector<std::string>& arguments,
                                const std::string& named) {
    const ProgramResult result = run_octet(arguments);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_NE(result.err.find(named), std::string::npos) << result.err;
  };
  expect_error({"calibrate", "--model", model_, "--text", text_, empty, "-o", output},
               empty + ": holds no text");
  expect_error({"calibrate", "--model", model_, "--text", "", "-o", output}, "--text: expected");
  expect_error({"calibrate", "--model", model_, "--text", text_, "-o", ""}, "--output: expected");
  expect_error({"calibrate", "--model", model_, "--text", "-", "-o", output},
               "standard input: holds no text");
  expect_error({"eval", "kl", "--model", model_, "--text", empty}, empty + ": holds no text");
  expect_error({"eval", "kl", "--model", model_, "--text", ""}, "--text: expected");
  expect_error({"generate", "--model", model_, "--prompt-file", ""}, "--prompt-file: expected");
  EXPECT_FALSE(std::filesystem::exists(output));
}

// Scales by which all of a layer's keys become 0 are positive numbers, and the answer is text: it
// is told.
TEST_F(CachePolicyCliTest, ScalesThatLeaveNothingOfKeysAreTold) {
  const std::vector<std::string> dynamic = {"--kv-cache-dtype", "fp8"};
  EXPECT_EQ(generate(dynamic).err.find("too small for the format"), std::string::npos);
  const std::string scales = (folder_ / "huge.safetensors").string();
  std::vector<FloatTensor> tensors;
  for (int layer = 0; layer < 3; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.self_attn.", layer);
    tensors.push_back({prefix + "k_scale", {1}, {layer == 1 ? 1e12f : 0.01f}});
    tensors.push_back({prefix + "v_scale", {1}, {0.01f}});
  }
  write_file_atomically(scales, encode_safetensors(tensors));
  const ProgramResult result = generate({"--kv-cache-dtype", "fp8", "--kv-cache-scales", scales});
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.err.find("most keys or values of layer 1 are too small"), std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find(scales), std::string::npos) << result.err;
}

// By hand: a prompt of tokens P and 4 more make P + 3 rows (the last token is not read), of 2 KV
// heads of 16 for keys and for values each. None of these is 0.
TEST_F(CachePolicyCliTest, VerboseCountsEachElementOnce) {
  const std::string scales = (folder_ / "odd.safetensors").string();
  std::vector<FloatTensor> tensors;
  for (int layer = 0; layer < 3; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.self_attn.", layer);
    tensors.push_back({prefix + "k_scale", {1}, {layer == 0 ? 1e12f : layer == 1 ? 1e-12f : 0.1f}});
    tensors.push_back({prefix + "v_scale", {1}, {layer == 0 ? 1e12f : 0.1f}});
  }
  write_file_atomically(scales, encode_safetensors(tensors));
  std::vector<std::string> flags = {"--kv-cache-dtype", "fp8", "--kv-cache-scales", scales};
  std::vector<std::string> as_json = flags;
  as_json.push_back("--json");
  const Json report = parse_json(generate(as_json).out, "the output");
  const int rows = report["prompt_tokens"].get<int>() + 3;
  flags.push_back("--verbose");
  const std::string err = generate(flags).err;
  const int side = rows * 2 * 16;
  const auto line = [](int layer, int saturated, int subnormal) {
    return fmt::format("\n{:>5}  {:>9}  {:>9}  {:>10}\n", layer, saturated, subnormal, 0);
  };
  EXPECT_NE(err.find(line(0, 0, 2 * side)), std::string::npos) << err;
  EXPECT_NE(err.find(fmt::format("\n    1  {:>9}", side)), std::string::npos) << err;
  EXPECT_NE(err.find(fmt::format("rounding lost {} values", side)), std::string::npos) << err;
}

TEST_F(CachePolicyCliTest, TheAccumulatorsFiguresComeAsTableAndJson) {
  const ProgramResult table = run_octet({"eval", "accumulation", "--context", "2048"});
  ASSERT_EQ(table.status, 0) << table.err;
  EXPECT_NE(table.out.find("never, running max"), std::string::npos);
  const ProgramResult json = run_octet({"eval", "accumulation", "--context", "2048", "--json"});
  const Json report = parse_json(json.out, "the output");
  EXPECT_EQ(report["contexts"].size(), 2u);
  EXPECT_EQ(report["curves"].size(), 32u);
  EXPECT_EQ(run_octet({"eval", "accumulation", "--plot", "plot.pdf"}).status, 2);
  EXPECT_EQ(run_octet({"eval", "accumulation", "--context", "1023"}).status, 2);
  EXPECT_EQ(run_octet({"eval", "accumulation", "--plot", ""}).status, 2);
  const ProgramResult both =
      run_octet({"eval", "accumulation", "--context", "1024", "--json", "--plot", "-"});
  EXPECT_EQ(both.status, 2);
  EXPECT_TRUE(both.out.empty());
  EXPECT_NE(both.err.find("--plot - and --json"), std::string::npos) << both.err;
  // A single context that is no multiple of 1,024; gnuplot says nothing.
  const std::string plot = (folder_ / "plot.svg").string();
  const ProgramResult drawn =
      run_octet({"eval", "accumulation", "--context", "1500", "--plot", plot});
  EXPECT_EQ(drawn.status, 0);
  EXPECT_EQ(drawn.err, "");
  EXPECT_NE(drawn.out.find("     1500\n"), std::string::npos) << drawn.out;
  EXPECT_NE(read_file(plot).find("</svg>"), std::string::npos);
  const ProgramResult letters =
      run_octet({"eval", "accumulation", "--context", "1024", "--plot", "-"});
  EXPECT_EQ(letters.status, 0);
  EXPECT_EQ(letters.err, "");
  EXPECT_NE(letters.out.find("relative error"), std::string::npos);
}

}  // namespace
}  // namespace octet
