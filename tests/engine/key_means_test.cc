// Key means: what they are, where they are kept, and what never enters them.
#include "engine/key_means.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "core/error.h"
#include "engine/builtin_text.h"
#include "files/write_file.h"
#include "kv/element_order.h"
#include "support/test_models.h"

namespace octet {
namespace {

class KeyMeansTest : public ::testing::Test {
 protected:
  KeyMeansTest() { open("models/llama_mixed.gguf"); }

  void open(const std::string& name) {
    const auto file = GgufFile::open(data_path(name));
    model_ = load_model(file);
    tokenizer_ = Tokenizer::from_gguf(*file);
  }

  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("octet_engine_key_means_" + std::to_string(getpid()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directory(folder_);
    const char* before = std::getenv("XDG_CACHE_HOME");
    if (before != nullptr) before_ = before;
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    if (before_) {
      setenv("XDG_CACHE_HOME", before_->c_str(), 1);
    } else {
      unsetenv("XDG_CACHE_HOME");
    }
    std::filesystem::remove_all(folder_);
  }

  EngineOptions options(const std::string& dtype = "fp8") const {
    EngineOptions made = engine_options(TestOptions{.cache = dtype}, 200);
    made.cache.key_mean = "auto";
    return made;
  }

  std::vector<std::filesystem::path> kept() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    return files;
  }

  std::filesystem::path folder_;
  std::optional<std::string> before_;
  std::shared_ptr<Model> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

// Against the keys as a float32 cache holds them.
TEST_F(KeyMeansTest, AreTheMeansOfTheBuiltInTextsKeys) {
  for (const char* name : {"models/llama_mixed.gguf", "models/qwen2_biases.gguf"}) {
    open(name);
    std::vector<TokenId> tokens = tokenizer_->encode(builtin_text(), SpecialText::literal);
    if (tokenizer_->adds_beginning_of_text() && tokenizer_->beginning_of_text()) {
      tokens.insert(tokens.begin(), *tokenizer_->beginning_of_text());
    }
    ASSERT_GE(tokens.size(), 500u);
    tokens.resize(500);

    EngineCore core(model_, engine_options(TestOptions{}, 500));
    BlockTable blocks(core.pool());
    ASSERT_TRUE(blocks.grow_to(500));
    RunnerRows rows;
    rows.blocks = &blocks;
    rows.tokens = tokens;
    core.runner().run({&rows, 1});

    const KvKeyMeans means = compute_key_means(model_, *tokenizer_, options());
    EXPECT_EQ(means.source, "500 built-in tokens");
    const std::vector<KvLayerGeometry> geometry = model_->config().kv_geometry();
    ASSERT_EQ(means.layers.size(), geometry.size());
    for (int layer = 0; layer < model_->config().layers; ++layer) {
      const KvLayerView view = core.pool().layer_view(layer);
      const KvRunLayout& run = view.group->run;
      for (int head = 0; head < view.group->geometry.kv_heads; ++head) {
        for (int i = 0; i < run.head_dim; ++i) {
          // Each key as often as a query sees it, by that query's share.
          double mean = 0;
          for (int token = 0; token < 500; ++token) {
            double weight = 0;
            for (int query = token; query < 500; ++query) weight += 1.0 / (query + 1) / 500;
            float value = 0;
            const PageId page = blocks.pages(0)[static_cast<std::size_t>(token / 64)];
            std::memcpy(&value,
                        view.run(page, head) + run.key_offset +
                            element_offset(run.key_order, 4, run.head_dim, token % 64, i),
                        sizeof(value));
            mean += weight * value;
          }
          EXPECT_NEAR(means.layers[static_cast<std::size_t>(layer)]
                                  [static_cast<std::size_t>(head * run.head_dim + i)],
                      mean, 1e-6 * (1 + std::fabs(mean)));
        }
      }
    }
  }
}

TEST_F(KeyMeansTest, AreTheSameOnAnyThreadsAndArithmeticAndAlmostOnAnyInstructions) {
  EngineOptions machine = options();
  const KvKeyMeans means = compute_key_means(model_, *tokenizer_, machine);
  machine.threads = 1;
  machine.arithmetic = Arithmetic::bfloat16;
  EXPECT_EQ(compute_key_means(model_, *tokenizer_, machine).layers, means.layers);
  machine.instruction_set = InstructionSet::portable;
  const KvKeyMeans portable = compute_key_means(model_, *tokenizer_, machine);
  for (std::size_t layer = 0; layer < means.layers.size(); ++layer) {
    for (std::size_t i = 0; i < means.layers[layer].size(); ++i) {
      EXPECT_NEAR(portable.layers[layer][i], means.layers[layer][i], 1e-5);
    }
  }
}

TEST_F(KeyMeansTest, AreKeptOnceAndReadBack) {
  EXPECT_TRUE(kept().empty());
  const EngineOptions first = with_key_means(options(), model_, *tokenizer_);
  ASSERT_EQ(kept().size(), 1u);
  EXPECT_EQ(kept()[0].parent_path(), folder_ / "octet" / "key_means");
  const std::string bytes = read_file(kept()[0]);
  const EngineOptions second = with_key_means(options("int8"), model_, *tokenizer_);
  EXPECT_EQ(second.cache.means->layers, first.cache.means->layers);
  EXPECT_EQ(second.cache.means->source, first.cache.means->source);

  // The second came from the file: what the file says is what a third gets.
  const std::vector<KvLayerGeometry> geometry = model_->config().kv_geometry();
  KvKeyMeans other = *first.cache.means;
  other.layers[0][0] += 1;
  const std::string identity = kept()[0].stem().string();
  write_file_atomically(kept()[0].string(), encode_key_means(other, geometry, identity));
  EXPECT_EQ(with_key_means(options(), model_, *tokenizer_).cache.means->layers, other.layers);

  // One that is damaged, cut short, another model's or no file at all is named and written anew.
  const std::string path = kept()[0].string();
  std::string flipped = bytes;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  const std::vector<std::byte> of_another = encode_key_means(other, geometry, "another");
  for (const std::string& damaged :
       {flipped, bytes.substr(0, bytes.size() / 2), std::string(),
        std::string(reinterpret_cast<const char*>(of_another.data()), of_another.size())}) {
    std::ofstream(path, std::ios::binary) << damaged;
    const auto means = with_key_means(options(), model_, *tokenizer_).cache.means;
    EXPECT_EQ(means->layers, first.cache.means->layers);
    EXPECT_NE(means->source.find("(taken anew, for " + path + ": "), std::string::npos)
        << means->source;
    EXPECT_EQ(read_file(path), bytes);
  }
  EXPECT_EQ(with_key_means(options(), model_, *tokenizer_).cache.means->source,
            first.cache.means->source);

  // Another model's lie in another file.
  open("models/llama_rope_scaling.gguf");
  with_key_means(options(), model_, *tokenizer_);
  EXPECT_EQ(kept().size(), 2u);
}

TEST_F(KeyMeansTest, AFolderThatCannotBeWrittenIsANote) {
  const std::string blocked = (folder_ / "file").string();
  std::ofstream(blocked) << "no folder";
  setenv("XDG_CACHE_HOME", blocked.c_str(), 1);
  const EngineOptions made = with_key_means(options(), model_, *tokenizer_);
  ASSERT_NE(made.cache.means, nullptr);
  EXPECT_NE(made.cache.means->source.find("not kept"), std::string::npos);
  Engine engine(model_, tokenizer_, options());
  EXPECT_NE(engine.core().policy().summary().find("not kept"), std::string::npos);

  setenv("XDG_CACHE_HOME", "relative/path", 1);
  const char* home = std::getenv("HOME");
  EXPECT_EQ(key_mean_folder().has_value(), home != nullptr && home[0] == '/');
}

TEST_F(KeyMeansTest, AreNotTakenWhereNothingWantsThem) {
  for (const char* dtype : {"float32", "bfloat16", "auto"}) {
    EXPECT_EQ(with_key_means(options(dtype), model_, *tokenizer_).cache.means, nullptr) << dtype;
  }
  EngineOptions unit = options();
  unit.cache.scales = "unit";
  EXPECT_EQ(with_key_means(unit, model_, *tokenizer_).cache.means, nullptr);
  EngineOptions off = options();
  off.cache.key_mean = "off";
  EXPECT_EQ(with_key_means(off, model_, *tokenizer_).cache.means, nullptr);
  EXPECT_TRUE(kept().empty());
  EXPECT_THROW(EngineCore(model_, options()), Error);  // auto, and nobody took them
}

// vllm#37554, #21640: a warm-up or a user's text must not set what rounding depends on. And a
// second engine of the same model answers the same (vllm#57163).
TEST_F(KeyMeansTest, NothingThatIsSentEntersThem) {
  const auto answer = [this](Engine& engine, TokenId start) {
    GenerateRequest request;
    for (TokenId i = 0; i < 90; ++i) request.prompt.push_back((start + i * 7) % 300);
    request.sampling.max_tokens = 20;
    request.sampling.ignore_eos = true;
    engine.submit(request);
    std::vector<TokenId> tokens;
    while (!engine.idle()) {
      for (const TokenEvent& event : engine.step()) tokens.push_back(event.token);
    }
    return tokens;
  };
  Engine engine(model_, tokenizer_, options("int8:fp8"));
  const std::string before = engine.core().policy().fingerprint();
  const std::vector<TokenId> fresh = answer(engine, 3);
  answer(engine, 200);
  EXPECT_EQ(engine.core().policy().fingerprint(), before);
  Engine again(model_, tokenizer_, options("int8:fp8"));
  EXPECT_EQ(again.core().policy().fingerprint(), before);
  answer(again, 200);
  EXPECT_EQ(answer(again, 3), fresh);
}

}  // namespace
}  // namespace octet
