// Models on the GPU against the same models on the CPU in float32, and against themselves: alone
// and in a batch, whole and in chunks, as graphs and not, wherever their pages lie.
#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "support/test_models.h"

namespace octet {
namespace {

// Of the norm of the difference to the norm of the CPU's logits. bfloat16 keeps 8 bits: each
// rounding is off by 2^-9 (0.2 %) at most, and about a dozen of them a layer add up at random.
constexpr double logit_bound = 3e-2;
// Two orders of the same sums on the GPU, whose results are rounded on their own.
constexpr double order_bound = 3e-2;
// Keys with biases of 50 to 200, of which bfloat16 keeps 8 bits too, move the softmax itself.
constexpr double biased_keys_bound = 0.25;

std::shared_ptr<Model> load(const std::string& name, Device device) {
  LoadOptions options;
  options.device = device;
  return load_model(Checkpoint::open(data_path("models/" + name)), options);
}

std::vector<TokenId> random_tokens(std::int64_t count, std::int64_t vocabulary, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<TokenId> token(0, static_cast<TokenId>(vocabulary - 1));
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  for (TokenId& id : tokens) id = token(random);
  return tokens;
}

double relative_difference(std::span<const float> given, std::span<const float> wanted) {
  EXPECT_EQ(given.size(), wanted.size());
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double off = static_cast<double>(given[i]) - static_cast<double>(wanted[i]);
    difference += off * off;
    norm += static_cast<double>(wanted[i]) * static_cast<double>(wanted[i]);
  }
  return std::sqrt(difference / norm);  // NaN where any logit is
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TestOptions gpu_cache(const std::string& dtype, std::int64_t chunk = 0) {
  TestOptions options;
  options.cache = dtype;
  options.chunk = chunk;
  options.cache_fill = std::byte{0xFF};  // NaN in every format
  return options;
}

class GpuModelTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    gpu_ = load(GetParam(), Device::cuda);
    tokens_ = random_tokens(150, gpu_->config().vocabulary_size, 3);
  }
  bool has_biased_keys() const { return std::string(GetParam()) == "qwen2_biases.gguf"; }

  std::shared_ptr<Model> gpu_;
  std::vector<TokenId> tokens_;
};

TEST_P(GpuModelTest, LogitsAreTheCpusWithinTheBound) {
  const std::shared_ptr<Model> cpu = load(GetParam(), Device::cpu);
  const std::vector<float> wanted = all_logits(cpu, tokens_, {});
  for (const std::string dtype : {"bfloat16", "float16"}) {
    const double off = relative_difference(all_logits(gpu_, tokens_, gpu_cache(dtype)), wanted);
    EXPECT_LT(off, has_biased_keys() ? biased_keys_bound : logit_bound) << dtype;
    RecordProperty("difference_" + dtype, std::to_string(off));
  }
}

TEST_P(GpuModelTest, ChunksChangeTheLogitsWithinTheBound) {
  const std::vector<float> whole = all_logits(gpu_, tokens_, gpu_cache("bfloat16"));
  for (const std::int64_t chunk : {1, 7, 64, 100}) {
    EXPECT_LT(relative_difference(all_logits(gpu_, tokens_, gpu_cache("bfloat16", chunk)), whole),
              has_biased_keys() ? biased_keys_bound : order_bound)
        << chunk;
  }
}

TEST_P(GpuModelTest, TheCpuModelOfAGpuModelIsTheCpus) {
  const std::shared_ptr<Model> cpu = load(GetParam(), Device::cpu);
  EXPECT_TRUE(same_bits(all_logits(model_on_cpu(gpu_), tokens_, {}), all_logits(cpu, tokens_, {})));
}

INSTANTIATE_TEST_SUITE_P(Models, GpuModelTest,
                         ::testing::Values("folders/llama_bf16", "folders/qwen2_f32",
                                           "folders/gemma3_f16", "folders/llama_fp8_blocks",
                                           "folders/llama_ct_channel", "folders/llama_ct_block",
                                           "llama_mixed.gguf", "llama_k_quants.gguf",
                                           "llama_rope_scaling.gguf", "llama_wide_heads.gguf",
                                           "qwen2_biases.gguf", "gemma3_windows.gguf",
                                           "gemma3_scaled.gguf"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

// 8-bit formats: head_dim 32 is the narrowest that they take on a GPU.
TEST(GpuModels, EightBitCachesAreAsCloseAsOnTheCpu) {
  for (const char* name : {"llama_wide_heads.gguf", "gemma3_windows.gguf"}) {
    const std::shared_ptr<Model> gpu = load(name, Device::cuda);
    const std::shared_ptr<Model> cpu = model_on_cpu(gpu);
    const std::vector<TokenId> tokens = random_tokens(150, gpu->config().vocabulary_size, 4);
    for (const std::string dtype : {"fp8", "int8:fp8", "int8", "bfloat16:fp8", "fp8:float16"}) {
      TestOptions on_cpu;
      on_cpu.cache = dtype;
      const double off = relative_difference(all_logits(gpu, tokens, gpu_cache(dtype)),
                                             all_logits(cpu, tokens, on_cpu));
      EXPECT_LT(off, 2 * logit_bound) << name << " " << dtype;
    }
  }
}

// A few sequences that decode greedily, and the logits of their last step.
struct Decoded {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<float> logits;
};

struct DecodeOptions {
  std::int64_t sequences = 5;
  bool graphs = true;
  std::int64_t skipped_pages = 0;  // taken by others first
  std::size_t cache_bytes = 0;
  std::string cache = "bfloat16";
};

Decoded decode(const std::shared_ptr<Model>& model, const DecodeOptions& options) {
  constexpr std::int64_t steps = 40;  // a page's border among them
  EngineOptions engine = engine_options(gpu_cache(options.cache), 200);
  engine.limits.max_sequences = 8;
  engine.kv_cache_bytes = options.cache_bytes;
  engine.cuda_graphs = options.graphs;
  if (options.cache_bytes != 0) engine.cache_fill = std::nullopt;
  EngineCore core(model, engine);
  for (std::int64_t page = 0; page < options.skipped_pages; ++page) {
    for (int group = 0; group < static_cast<int>(core.pool().layout().groups().size()); ++group) {
      core.pool().allocate(group);
    }
  }
  const std::int64_t vocabulary = model->config().vocabulary_size;
  std::vector<BlockTable> blocks;
  Decoded decoded;
  std::vector<RunnerRows> rows(static_cast<std::size_t>(options.sequences));
  const std::vector<DrawRow> draws(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto length = static_cast<std::int64_t>(30 + 7 * i);
    decoded.tokens.push_back(random_tokens(length, vocabulary, static_cast<unsigned>(i)));
    blocks.emplace_back(core.pool());
  }
  std::vector<std::int64_t> done(rows.size(), 0);
  for (std::int64_t step = 0; step <= steps; ++step) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::vector<TokenId>& tokens = decoded.tokens[i];
      EXPECT_TRUE(blocks[i].grow_to(static_cast<std::int64_t>(tokens.size())));
      rows[i].blocks = &blocks[i];
      rows[i].tokens = std::span(tokens).subspan(static_cast<std::size_t>(done[i]));
      rows[i].first_position = done[i];
      rows[i].decodes = step > 0;
    }
    const std::span<const TokenId> drawn = core.runner().run_and_draw(rows, draws, vocabulary);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      done[i] = static_cast<std::int64_t>(decoded.tokens[i].size());
      EXPECT_GE(drawn[i], 0);
      decoded.tokens[i].push_back(drawn[i]);
    }
  }
  decoded.logits.resize(rows.size() * static_cast<std::size_t>(vocabulary));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    core.runner().read_logits(static_cast<std::int64_t>(i),
                              std::span(decoded.logits)
                                  .subspan(i * static_cast<std::size_t>(vocabulary),
                                           static_cast<std::size_t>(vocabulary)));
  }
  return decoded;
}

TEST(GpuModels, GraphsChangeNoBit) {
  // Up to two sequences of the second run as chains of products.
  for (const char* name : {"llama_wide_heads.gguf", "folders/llama_bf16", "gemma3_windows.gguf",
                           "qwen2_biases.gguf"}) {
    const std::shared_ptr<Model> model = load(name, Device::cuda);
    for (const std::int64_t sequences : {1, 2, 5, 8}) {
      const Decoded with = decode(model, {.sequences = sequences});
      const Decoded without = decode(model, {.sequences = sequences, .graphs = false});
      EXPECT_EQ(with.tokens, without.tokens) << name;
      EXPECT_TRUE(same_bits(with.logits, without.logits)) << name << ", " << sequences;
    }
  }
}

// The last pages of 6 GB lie beyond 2^31 bytes and, of 16-bit elements, beyond 2^31 elements.
TEST(GpuModels, PlacesOfPagesChangeNoBit) {
  for (const std::string cache : {"bfloat16", "fp8"}) {
    const std::shared_ptr<Model> model = load("llama_wide_heads.gguf", Device::cuda);
    const Decoded near = decode(model, {.cache = cache});
    constexpr std::size_t bytes = std::size_t{6} << 30;
    EngineOptions sizes = engine_options(gpu_cache(cache), 200);
    const KvLayout layout(model->config().kv_geometry(),
                          make_kv_policy(sizes.cache, model->config().kv_geometry()),
                          KvTarget::sm90);
    const auto pages = static_cast<std::int64_t>(bytes / layout.groups()[0].page_bytes);
    const Decoded far =
        decode(model, {.skipped_pages = pages - 40, .cache_bytes = bytes, .cache = cache});
    EXPECT_EQ(near.tokens, far.tokens) << cache;
    EXPECT_TRUE(same_bits(near.logits, far.logits)) << cache;
  }
}

TEST(GpuModels, ABatchChangesLogitsWithinTheBound) {
  const std::shared_ptr<Model> model = load("llama_wide_heads.gguf", Device::cuda);
  const std::int64_t vocabulary = model->config().vocabulary_size;
  constexpr std::int64_t sequences = 8;
  EngineOptions engine = engine_options(gpu_cache("bfloat16"), 100);
  engine.limits.max_sequences = sequences;
  EngineCore core(model, engine);
  std::vector<BlockTable> blocks;
  std::vector<std::vector<TokenId>> tokens;
  std::vector<RunnerRows> rows(sequences);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    tokens.push_back(random_tokens(20 + static_cast<std::int64_t>(9 * i), vocabulary, 50));
    blocks.emplace_back(core.pool());
    ASSERT_TRUE(blocks.back().grow_to(static_cast<std::int64_t>(tokens.back().size())));
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].blocks = &blocks[i];
    rows[i].tokens = tokens[i];
  }
  const std::span<const float> together = core.runner().run(rows);
  const std::vector<float> batch(together.begin(), together.end());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::span<const float> alone = core.runner().run({&rows[i], 1});
    const auto width = static_cast<std::size_t>(vocabulary);
    EXPECT_LT(relative_difference(std::span(batch).subspan(i * width, width), alone), order_bound)
        << i;
  }
}

// Infinities and values beyond e4m3 are counted on the GPU as on the CPU.
TEST(GpuModels, WhatTheCacheCouldNotHoldIsCounted) {
  const std::shared_ptr<Model> gpu = load("llama_wide_heads.gguf", Device::cuda);
  const std::vector<TokenId> tokens = random_tokens(100, gpu->config().vocabulary_size, 6);
  TestOptions options = gpu_cache("fp8");
  options.scales = "unit";
  std::vector<std::int64_t> subnormal;
  for (const std::shared_ptr<Model>& model : {gpu, model_on_cpu(gpu)}) {
    EngineCore core(model, engine_options(options, 100));
    for (int pass = 0; pass < 2; ++pass) {
      run_in_chunks(
          core, tokens, [](std::int64_t) { return 100; }, WantedLogits::none,
          [](std::span<const float>) {});
    }
    subnormal.push_back(core.runner().counters().total().subnormal);
  }
  EXPECT_GT(subnormal[0], 0);
  EXPECT_NEAR(static_cast<double>(subnormal[0]), static_cast<double>(subnormal[1]),
              0.1 * static_cast<double>(subnormal[1]));
}

}  // namespace
}  // namespace octet
