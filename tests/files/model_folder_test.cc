#include "files/model_folder.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/error.h"
#include "support/safetensors_writer.h"
#include "support/temporary_folder.h"

namespace octet {
namespace {

std::vector<std::byte> weights(float value) {
  return SafetensorsWriter().add("norm.weight", "F32", {1}, bytes_of<float>({value})).bytes();
}

float first_weight(const ModelFolder& folder) {
  float value = 0;
  std::memcpy(&value, folder.tensors().require("norm.weight").data, sizeof(value));
  return value;
}

void expect_refused(const std::string& path, const std::string& message) {
  try {
    ModelFolder::open(path);
    ADD_FAILURE() << "opened, but expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos)
        << error.what() << "\nlacks: " << message;
    EXPECT_EQ(std::string(error.what()).rfind(path, 0), 0u) << error.what();
  }
}

TEST(ModelFolder, OpensAllThatIsThere) {
  const TemporaryFolder folder;
  write_file(folder / "config.json", R"({"model_type": "llama", "hidden_size": 64})");
  write_file(folder / "model.safetensors", weights(1));
  {
    const auto model = ModelFolder::open(folder.path());
    EXPECT_EQ(model->path(), folder.path());
    EXPECT_EQ(model->config().require_string("model_type"), "llama");
    EXPECT_EQ(model->config().file(), folder / "config.json");
    EXPECT_EQ(first_weight(*model), 1);
    EXPECT_FALSE(model->generation_config().has_value());
    EXPECT_FALSE(model->quantization_file().has_value());
    EXPECT_FALSE(model->tokenizer().has_value());
    EXPECT_FALSE(model->tokenizer_config().has_value());
    EXPECT_FALSE(model->chat_template().has_value());
  }
  write_file(folder / "generation_config.json", R"({"eos_token_id": [1, 2]})");
  write_file(folder / "hf_quant_config.json", R"({"quantization": {"quant_algo": "FP8"}})");
  write_file(folder / "tokenizer.json", "{}");
  write_file(folder / "tokenizer_config.json", R"({"chat_template": "old"})");
  write_file(folder / "chat_template.jinja", "{{ messages }}");
  const auto model = ModelFolder::open(folder.path() + "/");
  EXPECT_EQ(model->generation_config()->find_integers("eos_token_id"),
            (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(model->quantization_file()->require("quantization").require_string("quant_algo"),
            "FP8");
  EXPECT_EQ(model->tokenizer()->text, "{}");
  EXPECT_EQ(model->tokenizer()->file, folder / "tokenizer.json");
  EXPECT_EQ(model->tokenizer_config()->text, R"({"chat_template": "old"})");
  EXPECT_EQ(model->chat_template()->text, "{{ messages }}");
}

TEST(ModelFolder, ASingleFileOfWeightsComesBeforeAnIndex) {
  const TemporaryFolder folder;
  write_file(folder / "config.json", "{}");
  write_file(folder / "model-00001-of-00001.safetensors", weights(2));
  write_file(folder / "model.safetensors.index.json",
             R"({"weight_map": {"norm.weight": "model-00001-of-00001.safetensors"}})");
  EXPECT_EQ(first_weight(*ModelFolder::open(folder.path())), 2);
  write_file(folder / "model.safetensors", weights(1));
  EXPECT_EQ(first_weight(*ModelFolder::open(folder.path())), 1);
}

TEST(ModelFolder, NamesWhatIsMissing) {
  const TemporaryFolder folder;
  expect_refused(folder / "absent", "is no folder");
  expect_refused(folder.path(), "holds no config.json");
  write_file(folder / "config.json", "{}");
  expect_refused(folder.path(), "holds neither model.safetensors nor model.safetensors.index.json");
  write_file(folder / "pytorch_model.bin", "x");
  expect_refused(folder.path(), "pickles, which can run code");
  write_file(folder / "model.Q4_K_M.gguf", "x");
  expect_refused(folder.path(), "it holds GGUF files");
  EXPECT_FALSE(ModelFolder::is_folder(folder / "config.json"));
  expect_refused(folder / "config.json", "is no folder");
}

TEST(ModelFolder, NamesTheFileThatIsBroken) {
  const TemporaryFolder folder;
  write_file(folder / "model.safetensors", weights(1));
  for (const std::string text : {"", "{", "[]", "{\"a\":1,\"a\":2}", "{\"a\":NaN}", "\xFF"}) {
    write_file(folder / "config.json", text);
    expect_refused(folder.path(), "/config.json: ");
  }
  std::string deep;
  for (int depth = 0; depth < 3000; ++depth) deep += "{\"a\":";
  write_file(folder / "config.json", deep);
  expect_refused(folder.path(), "/config.json: nests arrays and objects deeper than 64");
  std::filesystem::remove(folder / "config.json");
  std::filesystem::create_directory(folder / "config.json");
  expect_refused(folder.path(), "/config.json: is a directory");
  std::filesystem::remove(folder / "config.json");
  ASSERT_EQ(::mkfifo((folder / "config.json").c_str(), 0600), 0);
  expect_refused(folder.path(), "/config.json: is a pipe");
  std::filesystem::remove(folder / "config.json");
  std::filesystem::create_symlink("nowhere", folder / "config.json");
  expect_refused(folder.path(), "/config.json: cannot open the file");
  std::filesystem::remove(folder / "config.json");
  write_file(folder / "config.json", "{}");
  std::filesystem::resize_file(folder / "config.json", (std::uint64_t{16} << 20) + 1);
  expect_refused(folder.path(), "/config.json: has 16777217 bytes, expected at most 16777216");

  write_file(folder / "config.json", "{}");
  write_file(folder / "generation_config.json", "{]");
  expect_refused(folder.path(), "/generation_config.json: ");
  std::filesystem::remove(folder / "generation_config.json");
  write_file(folder / "model.safetensors",
             "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 9\n");
  expect_refused(folder.path(), "/model.safetensors: is a Git LFS pointer");
}

TEST(ModelFolder, RefusesTextsThatAreNone) {
  const TemporaryFolder folder;
  write_file(folder / "config.json", "{}");
  write_file(folder / "model.safetensors", weights(1));
  const auto model = ModelFolder::open(folder.path());
  write_file(folder / "tokenizer.json", "\xFF\xFE");
  EXPECT_THROW(model->tokenizer(), Error);
  write_file(folder / "chat_template.jinja", "x");
  std::filesystem::resize_file(folder / "chat_template.jinja", std::uint64_t{1} << 40);
  EXPECT_THROW(model->chat_template(), Error);
}

}  // namespace
}  // namespace octet
