// `octet bench` as its users meet it.
#include <string>

#include <gtest/gtest.h>

#include "support/cli_program.h"

namespace octet {
namespace {

using CliBenchTest = CliTest;

const std::string gemma3 = "gemma-3-270m.Q4_K_M.gguf";

TEST_F(CliBenchTest, BenchRefusesWhatItCannotMeasure) {
  expect_refused({"bench", "attention", "--heads", "7/2"}, "--heads 7/2");
  expect_refused({"bench", "attention", "--heads", "8"}, "--heads 8");
  expect_refused({"bench", "attention", "--heads", "8/0"}, "--heads 8/0");
  expect_refused({"bench", "attention", "--phase", "training"}, "--phase training");
  expect_refused({"bench", "attention", "--query-rows", "9", "--context", "8"}, "--query-rows 9");
  expect_refused({"bench", "attention", "--context", "0"}, "--context");
  expect_refused({"bench", "attention", "--lengths", "1,x"}, "--lengths '1,x'");
  expect_refused({"bench", "attention", "--lengths", "1,"}, "--lengths '1,'");
  expect_refused({"bench", "attention", "--lengths", "64,0"}, "--lengths '64,0'");
  expect_refused({"bench", "attention", "--lengths", "64,1", "--batch", "2"}, "--batch");
  expect_refused({"bench", "attention", "--lengths", "9,2", "--query-rows", "3"}, "--query-rows 3");
  expect_refused({"bench", "attention", "--phase", "prefill", "--lengths", "9,2"}, "--lengths");
}

// Where no GPU can be had, for want of one or of a backend, it is told in one sentence.

TEST_F(CliBenchTest, BenchStepMeasuresStepsAndTheirDifference) {
  const ProgramResult result =
      run_octet({"bench", "step", "--model", tiny_llama, "--device", "cpu", "--contexts", "9,70",
                 "--steps", "4", "--kv-cache-dtype", "bfloat16,fp8", "--threads", "1", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json report = parse_json(result.out, "bench step");
  EXPECT_EQ(report["device"], "cpu");
  ASSERT_EQ(report["figures"].size(), 4u);
  for (const Json& figure : report["figures"]) {
    EXPECT_GT(figure["itl_ms"]["p50"].get<double>(), 0);
    EXPECT_LE(figure["itl_ms"]["min"].get<double>(), figure["itl_ms"]["p50"].get<double>());
    EXPECT_GT(figure["ttft_ms"].get<double>(), 0);
  }
  // 70 keys of bfloat16 take twice the bytes of fp8 less its scales.
  EXPECT_EQ(report["figures"][2]["context"], 70);
  EXPECT_GT(report["figures"][2]["cache_bytes"].get<double>(),
            1.5 * report["figures"][3]["cache_bytes"].get<double>());
  ASSERT_EQ(report["differences"].size(), 2u);
  EXPECT_EQ(report["differences"][0]["pairs"], 4);
}

// A window of 40 keys and a chunk are shorter than the texts, and all that windowed layers have
// room for.

TEST_F(CliBenchTest, BenchStepGivesBackThePagesBeforeAWindow) {
  const ProgramResult result = run_octet(
      {"bench", "step", "--model", data_path("models/gemma3_windows.gguf"), "--device", "cpu",
       "--contexts", "200,400,300", "--batch", "2", "--steps", "2", "--kv-cache-dtype",
       "bfloat16,fp8", "--max-num-batched-tokens", "32", "--threads", "1", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json report = parse_json(result.out, "bench step");
  ASSERT_EQ(report["figures"].size(), 6u);
  const auto bytes = [&](std::size_t figure) {
    return report["figures"][figure]["cache_bytes"].get<double>();
  };
  // Only layers without a window read more keys of a longer text.
  EXPECT_DOUBLE_EQ(bytes(2) - bytes(4), bytes(4) - bytes(0));
  EXPECT_GT(bytes(2), bytes(4));
  EXPECT_GT(2 * bytes(0), bytes(2));
}

TEST_F(CliBenchTest, BenchStepRefusesWhatItCannotMeasure) {
  const auto step = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"bench", "step", "--device", "cpu", "--model"});
    return more;
  };
  const std::string geometry = data_path("models/geometry/llama-3.1-8b");
  expect_refused(step({tiny_llama, "--contexts", "8,x"}), "--contexts '8,x'");
  expect_refused(step({tiny_llama, "--contexts", "100000000"}), "--contexts 100000000");
  expect_refused(step({tiny_llama, "--kv-cache-dtype", "fp8,int8,fp8"}), "fp8,int8,fp8");
  expect_refused(step({tiny_llama, "--weight-dtype", "fp8"}), "--random-weights");
  expect_refused(step({geometry, "--random-weights", "--weight-dtype", "int4"}), "int4");
  expect_refused(step({geometry, "--random-weights"}), "random weights are made on a GPU");
  expect_refused(step({geometry}), "model.safetensors");
}

TEST_F(CliBenchTest, BenchCpuMeasuresAModelAndAttention) {
  const ProgramResult result = run_octet({"bench",
                                          "cpu",
                                          "--model",
                                          tiny_llama,
                                          "--depths",
                                          "0,70",
                                          "--prefill",
                                          "20",
                                          "--decode",
                                          "2",
                                          "--rounds",
                                          "1",
                                          "--kv-cache-dtype",
                                          "fp8,bfloat16",
                                          "--attention-context",
                                          "128",
                                          "--attention-rows",
                                          "64",
                                          "--threads",
                                          "2",
                                          "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json report = parse_json(result.out, "output");
  EXPECT_GT(report["read_gb_per_s"].get<double>(), 0);
  EXPECT_GT(report["multiply_add_gflops"].get<double>(), 0);
  ASSERT_EQ(report["model"].size(), 8u);  // two caches, two depths, two phases
  for (const Json& row : report["model"]) {
    EXPECT_GT(row["tokens_per_s"].get<double>(), 0);
    // What was done must fit the time that it took.
    EXPECT_NEAR(row["tokens_per_s"].get<double>() * row["ms"].get<double>(),
                1e3 * row["tokens"].get<double>(), 1e-3);
  }
  ASSERT_EQ(report["matrices"].size(), 18u);  // six types, three numbers of rows
  for (const Json& row : report["matrices"]) {
    const double operations =
        2 * row["rows"].get<double>() * row["outputs"].get<double>() * row["inputs"].get<double>();
    EXPECT_NEAR(row["gflops"].get<double>() * row["us"].get<double>() * 1e3 / operations, 1, 1e-9);
  }
  ASSERT_EQ(report["attention"].size(), 20u);  // five shapes, two caches, two phases
  for (const Json& row : report["attention"]) {
    const double rows = row["rows"].get<double>();
    const double pairs = rows * 128 - rows * (rows - 1) / 2;
    const double operations =
        4 * pairs * row["query_heads"].get<double>() * row["head_dim"].get<double>();
    EXPECT_NEAR(row["gflops"].get<double>() * row["us"].get<double>() * 1e3 / operations, 1, 1e-9);
  }
}

TEST_F(CliBenchTest, BenchCpuRefusesWhatItCannotMeasure) {
  const auto bench = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"bench", "cpu", "--model", tiny_llama, "--no-attention"});
    return more;
  };
  expect_refused(bench({"--depths", "0,x"}), "--depths '0,x'");
  expect_refused(bench({"--depths", "-1"}), "--depths '-1'");
  expect_refused(bench({"--depths", "100000000"}), "depth 100000000");
  expect_refused(bench({"--depths", "0", "--kv-cache-dtype", "fp8,fp7"}), "fp7");
  expect_refused(bench({"--rounds", "0"}), "--rounds");
  expect_refused({"bench", "cpu", "--attention-rows", "64", "--attention-context", "8"},
                 "--attention-rows 64");
}

}  // namespace
}  // namespace octet
