// Each adjustment by hand, as vLLM defines it.
#include "engine/logit_adjustments.h"

#include <array>
#include <limits>

#include <gtest/gtest.h>

namespace octet {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::array<float, 5> logits = {2.0f, -1.0f, 0.5f, 3.0f, -4.0f};
constexpr std::array<TokenId, 1> ends = {3};

std::vector<float> adjusted(const SamplingParams& params, std::int64_t generated = 0) {
  TokenCounts counts;
  counts.add_prompt(std::array<TokenId, 3>{0, 1, 0});
  counts.add_generated(2);
  counts.add_generated(2);
  counts.add_generated(4);
  std::vector<float> buffer;
  const std::span<const float> result =
      adjust_logits(logits, params, counts, generated, ends, &buffer);
  return {result.begin(), result.end()};
}

TEST(LogitAdjustments, NothingAskedForCopiesNothing) {
  std::vector<float> buffer;
  const std::span<const float> result =
      adjust_logits(logits, SamplingParams{}, TokenCounts{}, 0, ends, &buffer);
  EXPECT_EQ(result.data(), logits.data());
  EXPECT_TRUE(buffer.empty());
}

TEST(LogitAdjustments, RepetitionCountsPromptAndAnswerAndMovesLogitsDown) {
  SamplingParams params;
  params.repetition_penalty = 2.0f;
  EXPECT_EQ(adjusted(params), (std::vector<float>{1.0f, -2.0f, 0.25f, 3.0f, -8.0f}));
}

TEST(LogitAdjustments, PresenceAndFrequencyCountTheAnswerAlone) {
  SamplingParams params;
  params.presence_penalty = 0.5f;
  EXPECT_EQ(adjusted(params), (std::vector<float>{2.0f, -1.0f, 0.0f, 3.0f, -4.5f}));
  params.presence_penalty = 0.0f;
  params.frequency_penalty = -1.0f;
  EXPECT_EQ(adjusted(params), (std::vector<float>{2.0f, -1.0f, 2.5f, 3.0f, -3.0f}));
}

TEST(LogitAdjustments, BiasesComeBeforePenaltiesAndEndTokensWaitForMinTokens) {
  SamplingParams params;
  params.logit_bias = {{1, 5.0f}, {4, -100.0f}, {1, 1.0f}};
  params.repetition_penalty = 2.0f;
  params.min_tokens = 3;
  params.stop_token_ids = {0};
  EXPECT_EQ(adjusted(params, 2), (std::vector<float>{-infinity, 2.5f, 0.25f, -infinity, -208.0f}));
  EXPECT_EQ(adjusted(params, 3), (std::vector<float>{1.0f, 2.5f, 0.25f, 3.0f, -208.0f}));
  params.ignore_eos = true;
  EXPECT_EQ(adjusted(params, 2), (std::vector<float>{-infinity, 2.5f, 0.25f, 3.0f, -208.0f}));
}

}  // namespace
}  // namespace octet
