// KL divergence on a small random model, against a computation of its own from the same logits.
#include "eval/kl.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/test_models.h"

namespace octet {
namespace {

class KlTest : public ::testing::Test {
 protected:
  KlTest() : model_(open_model(data_path("models/llama_mixed.gguf"))) {
    for (int i = 0; i < 150; ++i) tokens_.push_back(static_cast<TokenId>(i * 37 % 300));
  }

  KlReport report(const char* reference, const char* candidate, std::span<const TokenId> tokens) {
    const auto length = static_cast<std::int64_t>(tokens.size());
    EngineCore first(model_, engine_options(TestOptions{.cache = reference}, length));
    EngineCore second(model_, engine_options(TestOptions{.cache = candidate}, length));
    return evaluate_kl(first, second, tokens, {});
  }

  // log softmax of one row, in long double.
  std::vector<long double> log_probabilities(std::span<const float> logits) {
    long double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<long double>(logit));
    std::vector<long double> result;
    for (const float logit : logits) result.push_back(logit - std::log(sum));
    return result;
  }

  std::shared_ptr<Model> model_;
  std::vector<TokenId> tokens_;
};

TEST_F(KlTest, EveryFigureIsTheDefinitions) {
  const KlReport got = report("float32", "fp8", tokens_);
  const std::vector<float> p = all_logits(model_, tokens_, TestOptions{.cache = "float32"});
  const std::vector<float> q = all_logits(model_, tokens_, TestOptions{.cache = "fp8"});
  const auto vocabulary = static_cast<std::size_t>(model_->config().vocabulary_size);
  std::vector<long double> divergences;
  long double reference_loss = 0;
  long double candidate_loss = 0;
  std::size_t same = 0;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::span<const float> row_p(&p[i * vocabulary], vocabulary);
    const std::span<const float> row_q(&q[i * vocabulary], vocabulary);
    const auto log_p = log_probabilities(row_p);
    const auto log_q = log_probabilities(row_q);
    long double divergence = 0;
    for (std::size_t v = 0; v < vocabulary; ++v) {
      divergence += std::exp(log_p[v]) * (log_p[v] - log_q[v]);
    }
    divergences.push_back(divergence);
    same += std::max_element(row_p.begin(), row_p.end()) - row_p.begin() ==
                    std::max_element(row_q.begin(), row_q.end()) - row_q.begin()
                ? 1
                : 0;
    if (i + 1 == tokens_.size()) continue;
    const auto next = static_cast<std::size_t>(tokens_[i + 1]);
    reference_loss -= log_p[next];
    candidate_loss -= log_q[next];
  }
  long double mean = 0;
  for (const long double divergence : divergences) mean += divergence / 150;
  EXPECT_EQ(got.tokens, 150);
  EXPECT_NEAR(got.mean, static_cast<double>(mean), 1e-9);
  EXPECT_EQ(got.top1_agreement, static_cast<double>(same) / 150);
  EXPECT_NEAR(got.reference_perplexity, std::exp(static_cast<double>(reference_loss / 149)), 1e-6);
  EXPECT_NEAR(got.candidate_perplexity, std::exp(static_cast<double>(candidate_loss / 149)), 1e-6);
  std::sort(divergences.begin(), divergences.end());
  EXPECT_NEAR(got.median, static_cast<double>(divergences[74]), 1e-9);
  EXPECT_NEAR(got.p99, static_cast<double>(divergences[148]), 1e-9);

  ASSERT_EQ(got.by_depth.size(), 8u);
  double weighted = 0;
  std::int64_t at = 0;
  for (const KlDepth& depth : got.by_depth) {
    EXPECT_EQ(depth.first, at);
    at = depth.last;
    weighted += depth.mean * static_cast<double>(depth.last - depth.first) / 150;
  }
  EXPECT_EQ(at, 150);
  EXPECT_NEAR(weighted, got.mean, 1e-12);
}

TEST_F(KlTest, ACacheAgainstItselfIsZero) {
  const KlReport got = report("int8:fp8", "int8:fp8", tokens_);
  EXPECT_EQ(got.mean, 0.0);
  EXPECT_EQ(got.p99, 0.0);
  EXPECT_EQ(got.top1_agreement, 1.0);
  EXPECT_EQ(got.reference_perplexity, got.candidate_perplexity);
}

TEST_F(KlTest, ATextWithNothingToPredictIsRefused) {
  EXPECT_THROW(report("float32", "fp8", std::span(tokens_).first(1)), Error);
  EXPECT_EQ(report("float32", "fp8", std::span(tokens_).first(2)).by_depth.size(), 2u);
}

}  // namespace
}  // namespace octet
