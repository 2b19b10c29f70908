// Folders that are broken, one file each: octet ends with status 2 and one sentence that names the
// file and what is wrong with it, whatever a stranger's model holds.
#include <algorithm>
#include <chrono>
#include <functional>

#include <gtest/gtest.h>

#include "cli/letter_folder.h"
#include "support/run_program.h"

namespace octet {
namespace {

std::string repeat(std::string_view text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

std::string little_endian(std::uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

// A safetensors file of this header and `data` bytes of zeros.
std::string safetensors(const std::string& header, std::size_t data) {
  return little_endian(header.size()) + header + std::string(data, '\0');
}

class HostileFolderTest : public LetterFolderTest {
 protected:
  // Sets up the folder anew, lets `breaks` change it, and asks for an answer.
  void expect_refused(const std::string& what, const std::vector<std::string>& named,
                      const std::function<void()>& breaks) {
    TearDown();
    SetUp();
    breaks();
    const auto begin = std::chrono::steady_clock::now();
    const ProgramResult result =
        run_octet({"generate", "--model", folder_.string(), "--chat", "--prompt", "hi there",
                   "--max-tokens", "2", "--ignore-eos"});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(result.status, 2) << what << "\n" << result.err;
    EXPECT_EQ(result.out, "") << what;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << what << "\n"
                                                                         << result.err;
    EXPECT_LT(result.err.size(), 1500u) << what;
    for (const std::string& name : named) {
      EXPECT_NE(result.err.find(name), std::string::npos) << what << "\n"
                                                          << name << "\n"
                                                          << result.err;
    }
    EXPECT_LT(took.count(), 30.0) << what;  // a second or two, but for a sanitizer's build
    for (const char* command : {"inspect", "tokenize"}) {
      expect_one_sentence_at_most(
          run_octet({command, "--model", folder_.string()}, "hi <s> there\n"), what);
    }
  }

  // What reads less of a folder may find nothing wrong with it.
  static void expect_one_sentence_at_most(const ProgramResult& result, const std::string& what) {
    EXPECT_TRUE(result.status == 0 || result.status == 2) << what << "\n" << result.err;
    if (result.status == 0) return;
    EXPECT_EQ(result.out, "") << what;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << what << "\n"
                                                                         << result.err;
  }

  // The same where one file has these bytes.
  void expect_file_refused(const std::string& file, const std::string& bytes,
                           const std::vector<std::string>& named) {
    expect_refused(file + ": " + bytes.substr(0, 80), named, [&] {
      std::filesystem::remove_all(folder_ / file);
      write_text(file, bytes);
    });
  }

  // The same where a value of a JSON file, by its path, is written as `text`.
  void expect_value_refused(const std::string& file, const std::string& pointer,
                            const std::string& text, const std::vector<std::string>& named) {
    expect_refused(file + " " + pointer + " = " + text.substr(0, 80), named, [&] {
      Json json = read(file);
      json[Json::json_pointer(pointer)] = "@";
      std::string bytes = dump_json(json);
      bytes.replace(bytes.find("\"@\""), 3, text);
      write_text(file, bytes);
    });
  }

  // The same where the weights are one file of these bytes.
  void expect_weights_refused(const std::string& bytes, const std::vector<std::string>& named) {
    expect_refused("model.safetensors: " + bytes.substr(0, 120), named, [&] {
      for (const char* file : {"model.safetensors.index.json", "model-00001-of-00002.safetensors",
                               "model-00002-of-00002.safetensors"}) {
        std::filesystem::remove(folder_ / file);
      }
      write_text("model.safetensors", bytes);
    });
  }
};

const std::string deep = repeat("[", 3000) + repeat("]", 3000);
const std::string deep_objects = repeat("{\"a\":", 3000) + "1" + repeat("}", 3000);

TEST_F(HostileFolderTest, TheUnbrokenOneAnswers) {
  const ProgramResult result = run_octet({"generate", "--model", folder_.string(), "--chat",
                                          "--prompt", "hi there", "--max-tokens", "2"});
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST_F(HostileFolderTest, EveryJsonFileThatIsNone) {
  for (const char* file : {"config.json", "generation_config.json", "tokenizer.json",
                           "tokenizer_config.json", "model.safetensors.index.json"}) {
    expect_file_refused(file, "", {file});
    expect_file_refused(file, "[]", {file});
    expect_file_refused(file, "{\"a\": 1", {file});
    expect_file_refused(file, "{\"a\": NaN}", {file});
    expect_file_refused(file, std::string("\0\0\0\0", 4), {file});
    expect_file_refused(file, deep, {file});
    expect_file_refused(file, deep_objects, {file});
    expect_refused(std::string(file) + " is a folder", {file}, [&] {
      std::filesystem::remove(folder_ / file);
      std::filesystem::create_directory(folder_ / file);
    });
  }
}

TEST_F(HostileFolderTest, Config) {
  const std::string file = "config.json";
  expect_refused("no config.json", {file}, [&] { std::filesystem::remove(folder_ / file); });
  for (const char* number : {"-1", "0", "1.5", "1e400", "9223372036854775808", "\"64\"", "[64]",
                             "null", "true", "1e308", "NaN", "2147483648"}) {
    expect_value_refused(file, "/hidden_size", number, {file});
    expect_value_refused(file, "/num_hidden_layers", number, {file});
    expect_value_refused(file, "/num_attention_heads", number, {file});
  }
  for (const char* number : {"-1", "1e400", "\"x\"", "NaN", "Infinity", "[]"}) {
    expect_value_refused(file, "/rms_norm_eps", number, {file});
    expect_value_refused(file, "/rope_parameters/rope_theta", number, {file});
    expect_value_refused(file, "/rope_parameters/factor", number, {file});
  }
  expect_value_refused(file, "/vocab_size", "9223372036854775807", {file});
  expect_value_refused(file, "/model_type", "\"nope\\u001b[31m\"", {file, "nope"});
  expect_value_refused(file, "/hidden_act", "\"gelu_tanh_quick\"", {file, "gelu_tanh_quick"});
  expect_value_refused(file, "/rope_parameters/rope_type", "\"spiral\"", {file, "spiral"});
  expect_value_refused(file, "/sliding_window", "128", {file, "sliding_window"});
  expect_value_refused(file, "/no_such_key", "1", {file, "no_such_key"});
  expect_value_refused(file, "/quantization_config", R"({"quant_method": "awq"})", {file, "awq"});
  expect_value_refused(file, "/hidden_act", deep, {file});
}

TEST_F(HostileFolderTest, WeightsInOneFile) {
  const std::string file = "model.safetensors";
  const std::string x =
      R"("model.norm.weight":{"dtype":"F32","shape":[64],"data_offsets":[0,256]})";
  expect_weights_refused("", {file});
  expect_weights_refused(little_endian(std::uint64_t{1} << 63), {file});
  expect_weights_refused(little_endian(std::uint64_t{1} << 63) + "{}", {file});
  expect_weights_refused(little_endian(~std::uint64_t{0}) + "{}", {file});
  expect_weights_refused(little_endian(3) + "{}", {file});
  expect_weights_refused(safetensors("{}", 0), {"embed_tokens"});
  expect_weights_refused(safetensors(fmt::format("{{{},{}}}", x, x), 256),
                         {file, "model.norm.weight"});
  expect_weights_refused(safetensors(fmt::format("{{{}}}", x), 255), {file});
  expect_weights_refused(safetensors(fmt::format("{{{}}}", x), 257), {file});
  expect_weights_refused(safetensors(deep, 0), {file});
  expect_weights_refused(safetensors(deep_objects, 0), {file});
  for (const char* tensor :
       {R"({"dtype":"F32","shape":[63],"data_offsets":[0,256]})",
        R"({"dtype":"F64x","shape":[64],"data_offsets":[0,256]})",
        R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,256]})",
        R"({"dtype":"F32","shape":[-64],"data_offsets":[0,256]})",
        R"({"dtype":"F32","shape":[64],"data_offsets":[256,0]})",
        R"({"dtype":"F32","shape":[64],"data_offsets":[0,18446744073709551615]})",
        R"({"dtype":"F32","shape":[64],"data_offsets":[1,257]})", R"({"dtype":"F32","shape":[64]})",
        R"(7)"}) {
    expect_weights_refused(safetensors(fmt::format(R"({{"model.norm.weight":{}}})", tensor), 256),
                           {file});
  }
  const std::string overlap = R"("b":{"dtype":"F32","shape":[64],"data_offsets":[128,384]})";
  expect_weights_refused(safetensors(fmt::format("{{{},{}}}", x, overlap), 384), {file});
}

TEST_F(HostileFolderTest, WeightsInManyFiles) {
  const std::string file = "model.safetensors.index.json";
  const std::string tensor = "/weight_map/model.norm.weight";
  for (const char* elsewhere : {"../other.safetensors", "/etc/passwd", "a/../../b.safetensors",
                                "..", "", "nope.safetensors", "model.safetensors.index.json",
                                "sub/x.safetensors", "x\\u0000.safetensors"}) {
    expect_value_refused(file, tensor, fmt::format("\"{}\"", elsewhere), {file});
  }
  expect_value_refused(file, tensor, "7", {file});
  expect_value_refused(file, "/weight_map", "[]", {file});
  expect_value_refused(file, "/weight_map/no.such.tensor", "\"model-00001-of-00002.safetensors\"",
                       {"no.such.tensor"});
  expect_refused("a missing part", {"model-00002-of-00002.safetensors"},
                 [&] { std::filesystem::remove(folder_ / "model-00002-of-00002.safetensors"); });
  expect_refused("half a part", {"model-00001-of-00002.safetensors"}, [&] {
    const std::string bytes = read_text("model-00001-of-00002.safetensors");
    write_text("model-00001-of-00002.safetensors", bytes.substr(0, bytes.size() / 2));
  });
}

TEST_F(HostileFolderTest, Tokenizer) {
  const std::string file = "tokenizer.json";
  for (const char* id :
       {"-1", "1.5", "1e30", "9223372036854775808", "\"3\"", "null", "3", "2147483647"}) {
    expect_value_refused(file, "/model/vocab/q", id, {file});
  }
  expect_value_refused(file, "/model/merges", R"([["a", "nope"]])", {file, "merges[0]"});
  expect_value_refused(file, "/model/merges", R"(["a b c d"])", {file});
  expect_value_refused(file, "/model/merges", R"([["a", "b"]])", {file, "ab"});
  expect_value_refused(file, "/model/merges", "7", {file});
  expect_value_refused(file, "/model/type", "\"WordPiece\"", {file, "WordPiece"});
  expect_value_refused(file, "/normalizer", R"({"type": "Nope"})", {file, "Nope"});
  expect_value_refused(file, "/pre_tokenizer", R"({"type": "Nope"})", {file, "Nope"});
  expect_value_refused(
      file, "/pre_tokenizer",
      R"({"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": false})",
      {file});
  expect_value_refused(file, "/pre_tokenizer",
                       fmt::format(R"({{"type": "Sequence", "pretokenizers": {}}})", deep), {file});
  expect_value_refused(file, "/decoder", R"({"type": "Nope"})", {file, "Nope"});
  expect_value_refused(file, "/added_tokens/0/id", "2", {file});
  expect_value_refused(file, "/added_tokens/0/id", "-7", {file});
  expect_value_refused(file, "/added_tokens/0/content", "\"</s>\"", {file});
  expect_value_refused(file, "/added_tokens/0/content", "[\"<s>\"]", {file});
  expect_value_refused(file, "/added_tokens", "{}", {file, "added_tokens"});
}

TEST_F(HostileFolderTest, TokenizerConfigAndGenerationConfig) {
  const std::string file = "tokenizer_config.json";
  expect_value_refused(file, "/eos_token", "\"<no such token>\"", {file, "<no such token>"});
  expect_value_refused(file, "/eos_token", "[1]", {file, "eos_token"});
  expect_value_refused(file, "/bos_token", deep, {file});
  expect_value_refused(file, "/chat_template", "7", {"chat_template"});
  for (const char* id : {"-1", "1.5", "\"2\"", "9223372036854775808", "[2, \"x\"]", "1e400"}) {
    expect_value_refused("generation_config.json", "/eos_token_id", id, {"generation_config.json"});
  }
  expect_value_refused("generation_config.json", "/eos_token_id", "64", {"end token 64"});
}

TEST_F(HostileFolderTest, ChatTemplate) {
  const std::string file = "chat_template.jinja";
  const std::string forever =
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
  expect_file_refused(file, forever, {"chat template", "steps"});
  expect_file_refused(file, "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", {"chat template"});
  expect_file_refused(file, "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
                      {"chat template", "levels deep"});
  expect_file_refused(file, "{{ 'a' * 1000000000 }}", {"chat template", "16777216 bytes"});
  expect_file_refused(file, "{% for a in [1, 2] %}{{ 'xxxxxxxx' * 100000 * 20 }}{% endfor %}",
                      {"chat template", "the output"});
  expect_file_refused(file, "{% if x %}", {"chat template", "endif"});
  expect_file_refused(file, "{{ raise_exception('no\nway\x1b[31m') }}", {"no\\x0away\\x1b[31m"});
  expect_file_refused(file, repeat("(", 300000), {"chat template"});
  expect_file_refused(file, fmt::format("{{{{ {} }}}}", deep), {"chat template"});
  expect_file_refused(file, "ab\xff", {"UTF-8"});
  expect_file_refused(file, "{{ messages[0].nope.deeper }}", {"chat template", "nope"});
  expect_file_refused(file, "", {});
}

}  // namespace
}  // namespace octet
