// A real model on the GPU against itself on the CPU in float32.
#include <algorithm>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "engine/builtin_text.h"
#include "engine/key_means.h"
#include "engine/sampler.h"
#include "eval/kl.h"
#include "support/test_models.h"

namespace octet {
namespace {

constexpr std::size_t text_tokens = 384;
// What bfloat16 activations cost, of the norm of the logits less their mean.
// Measured: 2.2e-2 by decoding, 2.7e-2 and 3.1e-2 in chunks, whose packed weights are rounded too.
constexpr double logit_bound = 4e-2;
// The same in logits, for the largest difference of all; and the gap from which on choices must be
// the CPU's. Measured differences: 0.90, 1.2 and 1.7 (0.9 to 1.04 in another run). That choices are
// the same where the gap is over twice the measured difference would follow from it by itself; this
// is less than twice, and 49 of 384 rows have such a gap. In all rows 381 to 384 choices are the
// same.
constexpr double largest_difference_bound = 2.5;

class RealGpuModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto file = GgufFile::open(real_model_path("SmolLM2-135M-Instruct.Q4_1.gguf"));
    tokenizer_ = Tokenizer::from_gguf(*file);
    LoadOptions options;
    options.device = Device::cuda;
    gpu_ = load_model(file, options);
    cpu_ = model_on_cpu(gpu_);
    tokens_ = tokenizer_->encode(builtin_text(), SpecialText::literal);
    tokens_.resize(std::min(tokens_.size(), text_tokens));
  }

  EngineOptions options(const std::string& cache) const {
    EngineOptions made;
    made.cache.dtype = cache;
    made.cache.key_mean = "auto";
    made.max_model_len = static_cast<std::int64_t>(tokens_.size());
    made.limits.max_sequences = 1;
    made.instruction_set = detect_instruction_set();
    return made;
  }

  KlReport divergence(const std::shared_ptr<Model>& model, const std::string& reference,
                      const std::string& cache, std::int64_t chunk) const {
    EngineCore first(model, options(reference));
    EngineCore second(model, with_key_means(options(cache), model, *tokenizer_));
    return evaluate_kl(first, second, tokens_, {}, chunk);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<Model> gpu_;
  std::shared_ptr<Model> cpu_;
  std::vector<TokenId> tokens_;
};

TEST_F(RealGpuModelTest, LogitsAndChoicesAreTheCpusWithinTheBound) {
  const auto vocabulary = static_cast<std::size_t>(gpu_->config().vocabulary_size);
  TestOptions exact;
  exact.threads = 0;
  const std::vector<float> wanted = all_logits(cpu_, tokens_, exact);
  for (const std::int64_t chunk : {0, 1, 100}) {
    TestOptions rounded;
    rounded.cache = "bfloat16";
    rounded.chunk = chunk;
    const std::vector<float> given = all_logits(gpu_, tokens_, rounded);
    double difference = 0;
    double norm = 0;
    double largest = 0;
    std::int64_t clear = 0;
    std::int64_t same = 0;
    for (std::size_t row = 0; row < tokens_.size(); ++row) {
      const std::span<const float> a = std::span(wanted).subspan(row * vocabulary, vocabulary);
      const std::span<const float> b = std::span(given).subspan(row * vocabulary, vocabulary);
      double mean = 0;
      for (const float logit : a)
        mean += static_cast<double>(logit) / static_cast<double>(vocabulary);
      for (std::size_t v = 0; v < vocabulary; ++v) {
        const double off = static_cast<double>(b[v]) - static_cast<double>(a[v]);
        difference += off * off;
        norm += (static_cast<double>(a[v]) - mean) * (static_cast<double>(a[v]) - mean);
        largest = std::max(largest, std::abs(off));
      }
      const TokenId best = most_likely(a);
      std::vector<float> others(a.begin(), a.end());
      others[static_cast<std::size_t>(best)] = -HUGE_VALF;
      const float gap =
          a[static_cast<std::size_t>(best)] - *std::max_element(others.begin(), others.end());
      same += most_likely(b) == best ? 1 : 0;
      if (static_cast<double>(gap) <= largest_difference_bound) continue;
      ++clear;
      EXPECT_EQ(most_likely(b), best) << "row " << row << ", chunk " << chunk;
    }
    const double error = std::sqrt(difference / norm);
    std::printf(
        "chunk %lld: error %.2e, largest difference %.3f, same choice %lld of %zu, clear %lld\n",
        static_cast<long long>(chunk), error, largest, static_cast<long long>(same), tokens_.size(),
        static_cast<long long>(clear));
    EXPECT_LT(error, logit_bound);
    EXPECT_LT(largest, largest_difference_bound);
    EXPECT_GT(clear, 40);
    EXPECT_GT(same, static_cast<std::int64_t>(tokens_.size()) * 95 / 100);
  }
}

// 1.3 times what the same rounding costs on the CPU, and what comes on top by itself: both runs on
// the GPU are in bfloat16 arithmetic, and part by the floor (3.8e-4 and 4.0e-4 in two runs) as soon
// as their caches round differently, if hardly. On the CPU, in float32, they do not. Measured, in
// units of 1e-3, by decoding and (portable prefill) in chunks: int8:fp8 1.29 to 1.41 and 1.18 to
// 1.31, 0.78 on the CPU; int8 0.57 and 0.55, 0.20; bfloat16:fp8 1.12 and 1.10, 0.74; fp8 4.82 to
// 5.10 by decoding, 4.10: less the floor 0.8 to 1.3 times. So the floor is allowed 1.5 times, for
// it varies. Hopper's prefill of fp8 rounds queries and softmax weights to e4m3 as well, which the
// policy on the CPU does not: 10.3 and 10.4, 2.5 times. Over int8:fp8 it rounds weights alike and
// queries to int8; of that the CPU's emulation makes 1.51 in place of 0.91 (1,024 tokens), 1.7
// times.
TEST_F(RealGpuModelTest, EightBitCachesDivergeAsOnTheCpu) {
  const double floor = divergence(gpu_, "bfloat16", "float16", most_kl_chunk_tokens).mean;
  std::printf("bfloat16 against float16: KL %.2e\n", floor);
  for (const std::string cache : {"fp8", "int8:fp8", "int8", "bfloat16:fp8"}) {
    const double on_cpu = divergence(cpu_, "float32", cache, most_kl_chunk_tokens).mean;
    for (const std::int64_t chunk : {std::int64_t{1}, most_kl_chunk_tokens}) {
      const KlReport on_gpu = divergence(gpu_, "bfloat16", cache, chunk);
      std::printf("%s, chunk %lld: KL %.2e on the GPU, %.2e on the CPU, same top %.3f\n",
                  cache.c_str(), static_cast<long long>(chunk), on_gpu.mean, on_cpu,
                  on_gpu.top1_agreement);
      // Of what Hopper's prefill rounds beside the cache. Over int8:fp8 that is not measured yet:
      // the bound is the one that the portable prefill had.
      const double rounded = chunk > 1 && cache == "fp8" ? 3.0 : 1.3;
      const double floors = chunk > 1 && cache == "int8:fp8" ? 2.0 : 1.5;
      EXPECT_LT(on_gpu.mean, rounded * on_cpu + floors * floor) << cache << ", " << chunk;
    }
  }
}

}  // namespace
}  // namespace octet
