#include "engine/sampler.h"

#include <array>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "core/error.h"

namespace octet {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Share of each token over many draws.
std::vector<double> shares(std::span<const float> logits, const SamplingParams& params) {
  Sampler sampler;
  std::vector<double> counts(logits.size(), 0.0);
  constexpr int draws = 40000;
  for (int draw = 0; draw < draws; ++draw) {
    counts[static_cast<std::size_t>(sampler.sample(logits, params, 5, draw))] += 1.0 / draws;
  }
  return counts;
}

// log of 0.4, 0.3, 0.2 and 0.1, in another order.
const std::array<float, 4> logits = {std::log(0.2f), std::log(0.4f), std::log(0.1f),
                                     std::log(0.3f)};

TEST(Sampler, GreedyTakesTheHighestAndTheLowestIdAmongEquals) {
  Sampler sampler;
  const std::array<float, 4> tied = {1.0f, 3.0f, -infinity, 3.0f};
  EXPECT_EQ(sampler.sample(tied, SamplingParams{}, 0, 0), 1);
  EXPECT_EQ(most_likely(tied), 1);
}

TEST(Sampler, NoNumberAmongTheLogitsIsAnError) {
  Sampler sampler;
  const std::array<float, 2> broken = {std::nanf(""), -infinity};
  EXPECT_THROW(sampler.sample(broken, SamplingParams{}, 0, 0), Error);
}

// With +inf every weight is NaN, and top_p or min_p would leave no candidate to draw.
TEST(Sampler, OneLogitThatIsNoNumberIsAnErrorUnderEveryFilter) {
  Sampler sampler;
  for (const float bad : {infinity, std::nanf("")}) {
    const std::array<float, 3> row = {0.5f, bad, 1.0f};
    for (const auto& [top_p, min_p] : {std::pair(1.0f, 0.0f), {0.9f, 0.0f}, {1.0f, 0.1f}}) {
      for (const float temperature : {0.0f, 1.0f}) {
        SamplingParams params;
        params.temperature = temperature;
        params.top_p = top_p;
        params.min_p = min_p;
        try {
          sampler.sample(row, params, 1, 0);
          ADD_FAILURE() << "a token was chosen beside a logit of " << bad;
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("token 1"), std::string::npos) << error.what();
        }
      }
    }
  }
}

TEST(Sampler, ImpossibleTokensAreNotAmongTheMostLikely) {
  const std::array<float, 3> row = {0.0f, -infinity, 0.0f};
  const TokenLogprobs got = compute_logprobs(row, 0, 3);
  ASSERT_EQ(got.top.size(), 2u);
  EXPECT_NEAR(got.top[1].second, std::log(0.5), 1e-6);
}

TEST(Sampler, SharesFollowTheModelsProbabilities) {
  SamplingParams params;
  params.temperature = 1.0f;
  const std::vector<double> got = shares(logits, params);
  const std::array<double, 4> wanted = {0.2, 0.4, 0.1, 0.3};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i], wanted[i], 0.01);
}

TEST(Sampler, TemperatureSharpens) {
  SamplingParams params;
  params.temperature = 0.5f;  // probabilities squared: 4, 16, 1, 9 of 30
  const std::vector<double> got = shares(logits, params);
  EXPECT_NEAR(got[1], 16.0 / 30, 0.01);
  EXPECT_NEAR(got[2], 1.0 / 30, 0.01);
}

TEST(Sampler, FiltersKeepWhatTheySay) {
  SamplingParams params;
  params.temperature = 1.0f;
  params.top_k = 2;
  std::vector<double> got = shares(logits, params);
  EXPECT_NEAR(got[1], 4.0 / 7, 0.01);
  EXPECT_NEAR(got[3], 3.0 / 7, 0.01);
  EXPECT_EQ(got[0] + got[2], 0.0);

  params.top_k = 0;
  params.top_p = 0.75f;  // 0.4 + 0.3 fall short, so 0.2 comes too
  got = shares(logits, params);
  EXPECT_NEAR(got[0], 2.0 / 9, 0.01);
  EXPECT_EQ(got[2], 0.0);

  params.top_p = 1.0f;
  params.min_p = 0.6f;  // at least 0.24
  got = shares(logits, params);
  EXPECT_NEAR(got[1], 4.0 / 7, 0.01);
  EXPECT_EQ(got[0] + got[2], 0.0);

  params.min_p = 0.0f;
  params.top_p = 1e-6f;
  EXPECT_NEAR(shares(logits, params)[1], 1.0, 1e-9);
}

TEST(Sampler, TheDrawDependsOnSeedAndNumberAlone) {
  EXPECT_EQ(uniform_draw(1, 2), uniform_draw(1, 2));
  EXPECT_NE(uniform_draw(1, 2), uniform_draw(1, 3));
  EXPECT_NE(uniform_draw(1, 2), uniform_draw(2, 2));
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double u = uniform_draw(9, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.01);
}

TEST(Logprobs, AreTheLogSoftmaxMostLikelyFirst) {
  const TokenLogprobs got = compute_logprobs(logits, 2, 3);
  EXPECT_NEAR(got.logprob, std::log(0.1), 1e-6);
  ASSERT_EQ(got.top.size(), 3u);
  EXPECT_EQ(got.top[0].first, 1);
  EXPECT_NEAR(got.top[0].second, std::log(0.4), 1e-6);
  EXPECT_EQ(got.top[1].first, 3);
  EXPECT_EQ(got.top[2].first, 0);
  EXPECT_TRUE(compute_logprobs(logits, 2, 0).top.empty());
  EXPECT_EQ(compute_logprobs(logits, 2, 99).top.size(), 4u);
}

TEST(SamplingParams, AreCheckedByName) {
  const auto message = [](auto change) {
    SamplingParams params;
    change(params);
    try {
      params.validate();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message([](SamplingParams&) {}), "no error");
  EXPECT_EQ(message([](auto& p) { p.max_tokens = 0; }).find("max_tokens"), 0u);
  EXPECT_EQ(message([](auto& p) { p.temperature = -1; }).find("temperature"), 0u);
  EXPECT_EQ(message([](auto& p) { p.temperature = std::nanf(""); }).find("temperature"), 0u);
  EXPECT_EQ(message([](auto& p) { p.top_k = -1; }).find("top_k"), 0u);
  EXPECT_EQ(message([](auto& p) { p.top_p = 0; }).find("top_p"), 0u);
  EXPECT_EQ(message([](auto& p) { p.top_p = 1.5f; }).find("top_p"), 0u);
  EXPECT_EQ(message([](auto& p) { p.min_p = std::nanf(""); }).find("min_p"), 0u);
  EXPECT_EQ(message([](auto& p) { p.logprobs = 1 << 20; }).find("logprobs"), 0u);
  EXPECT_EQ(message([](auto& p) { p.stop = {"a", ""}; }).find("stop"), 0u);
}

}  // namespace
}  // namespace octet
