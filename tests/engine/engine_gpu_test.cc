// The engine over a model on the GPU.
#include <algorithm>
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "core/error.h"
#include "engine/engine.h"
#include "support/test_models.h"

namespace octet {
namespace {

struct Answer {
  std::vector<TokenId> tokens;
  FinishReason finished = FinishReason::none;
  std::string message;
  std::size_t prompt_logprobs = 0;
};

class GpuEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    file_ = GgufFile::open(data_path("models/llama_wide_heads.gguf"));
    tokenizer_ = Tokenizer::from_gguf(*file_);
    LoadOptions options;
    options.device = Device::cuda;
    model_ = load_model(file_, options);
  }

  EngineOptions options(std::size_t cache_pages = 0) const {
    EngineOptions made;
    made.cache.dtype = "bfloat16";
    made.max_model_len = 400;
    made.kv_cache_pages = static_cast<std::int64_t>(cache_pages);
    made.limits.max_sequences = 8;
    made.limits.max_batched_tokens = 128;
    made.limits.prefill_chunk = 128;
    return made;
  }

  GenerateRequest request(int index, std::int64_t max_tokens) const {
    GenerateRequest made;
    for (int i = 0; i < 20 + 5 * index; ++i) {
      made.prompt.push_back(static_cast<TokenId>((7 * index + 3 * i) % 60));
    }
    made.sampling.max_tokens = max_tokens;
    made.sampling.ignore_eos = true;
    return made;
  }

  static std::map<RequestId, Answer> run(Engine& engine) {
    std::map<RequestId, Answer> answers;
    while (!engine.idle()) {
      for (const TokenEvent& event : engine.step()) {
        Answer& answer = answers[event.request];
        if (event.token >= 0) answer.tokens.push_back(event.token);
        answer.prompt_logprobs += event.prompt_logprobs.size();
        if (event.finished != FinishReason::none) answer.finished = event.finished;
        answer.message += event.message;
      }
    }
    return answers;
  }

  std::shared_ptr<const GgufFile> file_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<Model> model_;
  std::map<int, std::vector<TokenId>> drawn_;
};

// The GPU's draw and the host's, which log-probabilities ask for, choose the same tokens.
TEST_F(GpuEngineTest, DrawsAsTheHostsSamplerDoes) {
  for (const bool on_host : {false, true}) {
    Engine engine(model_, tokenizer_, options());
    std::map<RequestId, int> index_of;
    for (int i = 0; i < 6; ++i) {
      GenerateRequest made = request(i, 40);
      made.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
      made.sampling.seed = 100 + static_cast<std::uint64_t>(i);
      if (i == 3) made.sampling.top_k = 5;
      if (i == 5) made.sampling.top_p = 0.8f;
      if (on_host) made.sampling.logprobs = 0;
      index_of[engine.submit(std::move(made))] = i;
    }
    for (const auto& [id, answer] : run(engine)) {
      const int index = index_of[id];
      EXPECT_EQ(answer.finished, FinishReason::length) << answer.message;
      EXPECT_EQ(answer.tokens.size(), 40u);
      if (!on_host) {
        drawn_[index] = answer.tokens;
      } else {
        EXPECT_EQ(answer.tokens, drawn_[index]) << index;
      }
    }
  }
}

TEST_F(GpuEngineTest, PenaltiesBiasesAndPromptLogprobsWork) {
  Engine engine(model_, tokenizer_, options());
  GenerateRequest biased = request(1, 10);
  biased.sampling.logit_bias = {{7, 100.0f}};
  GenerateRequest penalised = request(2, 30);
  penalised.sampling.frequency_penalty = 2.0f;
  GenerateRequest scored = request(6, 3);
  scored.sampling.prompt_logprobs = 1;
  const RequestId first = engine.submit(biased);
  const RequestId second = engine.submit(penalised);
  const RequestId third = engine.submit(scored);
  const std::map<RequestId, Answer> answers = run(engine);
  EXPECT_EQ(answers.at(first).tokens, std::vector<TokenId>(10, 7));
  EXPECT_EQ(answers.at(second).tokens.size(), 30u);
  EXPECT_EQ(answers.at(third).prompt_logprobs, scored.prompt.size() - 1);
}

// Alone, in a batch and over pages that another request left, an answer may part from itself only
// where its two likeliest tokens are closer than the order of sums can tell.
TEST_F(GpuEngineTest, BatchesAndWarmCachesPartAnswersAtNearTiesAlone) {
  // How far the same text's log-probabilities lie apart when it is read whole and row by row.
  const auto tokens = request(7, 1).prompt;
  TestOptions whole;
  whole.cache = "bfloat16";
  TestOptions rows = whole;
  rows.chunk = 1;
  const std::vector<float> a = all_logits(model_, tokens, whole);
  const std::vector<float> b = all_logits(model_, tokens, rows);
  double apart = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    apart = std::max(apart, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  constexpr int requests = 8;
  struct Told {
    std::vector<TokenId> tokens;
    std::vector<double> gaps;  // between the two likeliest
  };
  const auto run_all = [&](Engine& engine, bool together) {
    std::map<RequestId, int> index_of;
    std::vector<Told> told(requests);
    const auto drain = [&] {
      while (!engine.idle()) {
        for (const TokenEvent& event : engine.step()) {
          EXPECT_NE(event.finished, FinishReason::error) << event.message;
          if (event.token < 0) continue;
          Told& answer = told[static_cast<std::size_t>(index_of[event.request])];
          answer.tokens.push_back(event.token);
          const auto& top = event.logprobs->top;
          answer.gaps.push_back(static_cast<double>(top[0].second) -
                                static_cast<double>(top[1].second));
        }
      }
    };
    for (int i = 0; i < requests; ++i) {
      GenerateRequest made = request(i, 60);
      made.prompt.resize(std::max<std::size_t>(made.prompt.size(), 70), 5);  // a page to share
      made.sampling.logprobs = 2;
      index_of[engine.submit(std::move(made))] = i;
      if (!together) drain();
    }
    drain();
    return told;
  };
  Engine engine(model_, tokenizer_, options());
  const std::vector<Told> alone = run_all(engine, false);
  const std::vector<Told> warm = run_all(engine, false);
  const std::vector<Told> batched = run_all(engine, true);
  EXPECT_GT(engine.stats().prefix_hits, 0);
  for (const auto& other : {warm, batched}) {
    for (std::size_t i = 0; i < requests; ++i) {
      ASSERT_EQ(other[i].tokens.size(), alone[i].tokens.size());
      const auto [first, second] =
          std::mismatch(alone[i].tokens.begin(), alone[i].tokens.end(), other[i].tokens.begin());
      if (first == alone[i].tokens.end()) continue;
      const auto at = static_cast<std::size_t>(first - alone[i].tokens.begin());
      EXPECT_LT(alone[i].gaps[at], 2 * apart) << "request " << i << ", token " << at;
    }
  }
}

// More requests than the cache holds: some are preempted, all get their whole answer.
TEST_F(GpuEngineTest, PreemptionLosesNothing) {
  Engine engine(model_, tokenizer_, options(12));
  for (int i = 0; i < 12; ++i) engine.submit(request(i % 8, 150));
  for (const auto& [id, answer] : run(engine)) {
    EXPECT_EQ(answer.finished, FinishReason::length) << answer.message;
    EXPECT_EQ(answer.tokens.size(), 150u) << id;
  }
  EXPECT_GT(engine.stats().preemptions, 0);
  EXPECT_EQ(engine.core().pool().held_pages(), 0);
}

TEST_F(GpuEngineTest, ACacheThatTheGpuCannotHoldIsRefused) {
  EngineOptions made = options();
  made.kv_cache_bytes = std::size_t{1} << 50;
  try {
    const Engine engine(model_, tokenizer_, made);
    FAIL() << "a petabyte was had";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory) << error.what();
  }
}

}  // namespace
}  // namespace octet
