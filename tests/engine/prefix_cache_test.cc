// Texts that begin alike share pages, and no answer tells.
#include "engine/prefix_cache.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <random>

#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/engine.h"
#include "support/context_model.h"
#include "support/test_models.h"

namespace octet {
namespace {

struct Answer {
  std::vector<TokenId> tokens;
  TokenEvent last;
};

// The windows of the model's layers.
class PrefixCacheTest : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  PrefixCacheTest()
      : tokenizer_(Tokenizer::from_gguf(*GgufFile::open(data_path("models/llama_mixed.gguf")))),
        model_(std::make_shared<ContextModel>(tokenizer_->vocabulary_size(), GetParam())) {}

  EngineOptions options(std::int64_t max_model_len = 2048, std::int64_t pages = 0) const {
    EngineOptions made = engine_options(TestOptions{.threads = 1}, max_model_len);
    made.limits = {.max_sequences = 8, .max_batched_tokens = 256, .prefill_chunk = 128};
    made.kv_cache_pages = pages;
    return made;
  }
  std::unique_ptr<Engine> start(const EngineOptions& made) const {
    return std::make_unique<Engine>(model_, tokenizer_, made);
  }

  static std::vector<TokenId> text(int seed, std::size_t length) {
    std::mt19937 random(static_cast<unsigned>(seed));
    std::vector<TokenId> tokens(length);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 200);
    return tokens;
  }
  static GenerateRequest request(std::vector<TokenId> prompt, std::int64_t max_tokens,
                                 std::string salt = {}) {
    GenerateRequest made;
    made.prompt = std::move(prompt);
    made.sampling.max_tokens = max_tokens;
    made.sampling.ignore_eos = true;
    made.cache_salt = std::move(salt);
    return made;
  }

  static std::map<RequestId, Answer> run(Engine& engine) {
    std::map<RequestId, Answer> answers;
    while (!engine.idle()) {
      for (TokenEvent& event : engine.step()) {
        Answer& answer = answers[event.request];
        if (event.token >= 0) answer.tokens.push_back(event.token);
        answer.last = std::move(event);
      }
    }
    return answers;
  }
  Answer ask(Engine& engine, const GenerateRequest& asked) const {
    const RequestId id = engine.submit(asked);
    Answer answer = run(engine)[id];
    EXPECT_EQ(answer.tokens, model_->answer(asked.prompt, asked.sampling.max_tokens));
    return answer;
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<ContextModel> model_;
};

// Prompts of exactly k pages, and one token less and more: what is found, what is computed, and
// that a page which others may hold is not written.
TEST_P(PrefixCacheTest, APromptAtAPageEdgeIsReadOnceAndItsLastTokenAgain) {
  for (const std::int64_t pages : {1, 2, 5}) {
    for (const std::int64_t extra : {-1, 0, 1}) {
      const auto engine = start(options());
      const std::int64_t length = pages * page_tokens + extra;
      const GenerateRequest asked = request(text(1, static_cast<std::size_t>(length)), 3);
      EXPECT_EQ(ask(*engine, asked).last.cached_tokens, 0);
      for (int warm = 0; warm < 3; ++warm) {
        model_->rows = 0;
        model_->rows_written = 0;
        const std::int64_t found = (extra < 0 ? pages - 1 : pages) * page_tokens;
        const std::int64_t cached = std::min(found, length - 1);
        EXPECT_EQ(ask(*engine, asked).last.cached_tokens, cached);
        EXPECT_EQ(model_->rows, length - cached + 2);  // two tokens of the answer are read as well
        EXPECT_EQ(model_->rows_written, length - found + 2);
      }
      const EngineStats stats = engine->stats();
      EXPECT_EQ(stats.prefix_queries, 4 * length);
      EXPECT_EQ(stats.prefix_hits,
                3 * std::min((extra < 0 ? pages - 1 : pages) * page_tokens, length - 1));
      EXPECT_EQ(stats.kv_usage, 0.0);
    }
  }
}

TEST_P(PrefixCacheTest, TheSamePromptTwoHundredTimesIsTheSameAnswer) {
  EngineOptions cold = options();
  cold.prefix_caching = false;
  const auto without = start(cold);
  const auto with = start(options());
  for (int i = 0; i < 200; ++i) {
    const GenerateRequest asked = request(text(1, 128 + static_cast<std::size_t>(i % 3)), 5);
    EXPECT_EQ(ask(*without, asked).last.cached_tokens, 0);
    EXPECT_EQ(ask(*with, asked).last.cached_tokens > 0, i > 0);
  }
}

TEST_P(PrefixCacheTest, SaltsShareNothing) {
  const auto engine = start(options());
  const std::vector<TokenId> prompt = text(1, 300);
  EXPECT_EQ(ask(*engine, request(prompt, 2, "tenant a")).last.cached_tokens, 0);
  EXPECT_EQ(ask(*engine, request(prompt, 2, "tenant b")).last.cached_tokens, 0);
  EXPECT_EQ(ask(*engine, request(prompt, 2)).last.cached_tokens, 0);
  EXPECT_EQ(ask(*engine, request(prompt, 2, "tenant b")).last.cached_tokens, 256);
}

// nano-vllm counts a hit only after it has spent the step's rows on it: here two warm prompts of
// 1,000 tokens start in one step of 256 rows.
TEST_P(PrefixCacheTest, WhatIsFoundTakesNoRowsOfTheStep) {
  const auto engine = start(options());
  const std::vector<TokenId> first = text(1, 1000);
  const std::vector<TokenId> second = text(2, 1000);
  ask(*engine, request(first, 1));
  ask(*engine, request(second, 1));
  engine->submit(request(first, 1));
  engine->submit(request(second, 1));
  EXPECT_EQ(engine->step().size(), 2u);
  EXPECT_TRUE(engine->idle());
}

TEST_P(PrefixCacheTest, AConversationGoesOnFromItsLastAnswer) {
  const auto engine = start(options());
  std::vector<TokenId> talk = text(1, 100);
  for (int turn = 0; turn < 5; ++turn) {
    const Answer answer = ask(*engine, request(talk, 70));
    // All full pages of the last turn's prompt and answer, but for the answer's last token, which
    // was never read.
    const std::int64_t known = turn == 0 ? 0 : (static_cast<std::int64_t>(talk.size()) - 31) / 64;
    EXPECT_EQ(answer.last.cached_tokens, known * 64) << turn;
    talk.insert(talk.end(), answer.tokens.begin(), answer.tokens.end());
    const std::vector<TokenId> question = text(turn + 2, 30);
    talk.insert(talk.end(), question.begin(), question.end());
  }
}

// Several answers to one prompt, asked for at once: the prompt is read once.
TEST_P(PrefixCacheTest, RequestsAtTheSameTimeShareTheWork) {
  for (const std::size_t length : {100, 129, 700, 1000}) {
    const auto engine = start(options());
    const GenerateRequest asked = request(text(1, length), 4);
    model_->rows = 0;
    for (int i = 0; i < 8; ++i) engine->submit(asked);
    for (const auto& [id, answer] : run(*engine)) {
      EXPECT_EQ(answer.tokens, model_->answer(asked.prompt, 4));
    }
    const auto rest = static_cast<std::int64_t>(length % 64);
    EXPECT_LE(model_->rows, static_cast<std::int64_t>(length) + 7 * rest + 8 * 3 + 8 * 64);
    EXPECT_EQ(engine->core().pool().held_pages(), 0);
  }
}

TEST_P(PrefixCacheTest, AFaultyAnswerLeavesNothingToBeFound) {
  model_->poisonous_token = 199;
  const auto engine = start(options());
  std::vector<TokenId> prompt = text(1, 128);
  prompt.back() = 199;
  const RequestId id = engine->submit(request(prompt, 5));
  EXPECT_EQ(run(*engine)[id].last.finished, FinishReason::error);
  model_->poisonous_token = -1;
  EXPECT_EQ(ask(*engine, request(prompt, 5)).last.cached_tokens, 0);
}

TEST_P(PrefixCacheTest, ThePromptsLogprobsAreComputedNotFound) {
  const auto engine = start(options());
  const std::vector<TokenId> prompt = text(1, 200);
  ask(*engine, request(prompt, 1));
  GenerateRequest asked = request(prompt, 1);
  asked.sampling.prompt_logprobs = 0;
  EXPECT_EQ(ask(*engine, asked).last.cached_tokens, 0);
  // But what it computed is found by the next.
  const std::vector<TokenId> other = text(2, 200);
  asked.prompt = other;
  ask(*engine, asked);
  EXPECT_EQ(ask(*engine, request(other, 1)).last.cached_tokens, 192);
}

// Many requests over few pages: shared prefixes, preemptions, evictions, cancels, in an order that
// a seed decides. Each answer is the text's own, or a beginning of it where it was cancelled.
TEST_P(PrefixCacheTest, PressureChangesNoAnswer) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    std::mt19937 random(seed);
    // About twice what one text takes, whatever the windows.
    EngineOptions made = options(700, GetParam().front() == 65 ? 8 : 16);
    made.limits.max_sequences = 24;
    made.limits.prefill_beside_decodes = seed == 2 ? 64 : 0;
    const auto engine = start(made);
    std::map<RequestId, GenerateRequest> asked;
    std::map<RequestId, Answer> answers;
    const auto step = [&] {
      for (TokenEvent& event : engine->step()) {
        Answer& answer = answers[event.request];
        if (event.token >= 0) answer.tokens.push_back(event.token);
        answer.last = std::move(event);
      }
    };
    for (int i = 0; i < 150; ++i) {
      std::vector<TokenId> prompt = text(static_cast<int>(random() % 3), 1 + random() % 300);
      const std::vector<TokenId> tail = text(100 + i, random() % 100);
      prompt.insert(prompt.end(), tail.begin(), tail.end());
      const GenerateRequest next = request(prompt, 1 + static_cast<std::int64_t>(random() % 200));
      asked[engine->submit(next)] = next;
      if (random() % 8 == 0) {
        engine->cancel(1 + static_cast<RequestId>(random() % asked.size()));
      }
      for (std::size_t steps = random() % 6; steps-- > 0;) step();
    }
    while (!engine->idle()) step();
    std::int64_t cancelled = 0;
    ASSERT_EQ(answers.size(), asked.size());
    for (const auto& [id, answer] : answers) {
      const GenerateRequest& request = asked[id];
      const bool whole = answer.last.finished == FinishReason::length;
      cancelled += whole ? 0 : 1;
      EXPECT_EQ(answer.last.finished, whole ? FinishReason::length : FinishReason::cancelled);
      const auto count = static_cast<std::int64_t>(answer.tokens.size());
      EXPECT_LE(count, request.sampling.max_tokens);
      EXPECT_TRUE(!whole || count == request.sampling.max_tokens);
      EXPECT_EQ(answer.tokens, model_->answer(request.prompt, count)) << id;
    }
    EXPECT_GT(cancelled, 3);
    EXPECT_GT(engine->scheduler().preemptions(), 0);
    EXPECT_GT(engine->prefix_cache()->index().evictions(), 50);
    EXPECT_GT(engine->stats().prefix_hits, 500);
    EXPECT_EQ(engine->core().pool().held_pages(), 0);
  }
}

// Resident memory of this process in bytes.
std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// OCTET_NIGHT=1 runs 10,000 prompts; each is another text, so that the cache is full soon.
TEST_P(PrefixCacheTest, MemoryStaysWithinTheSumHoweverManyPromptsCome) {
  const bool night = std::getenv("OCTET_NIGHT") != nullptr;
  const int prompts = night ? 10000 : 600;
  const auto engine = start(options(512, 64));
  const PrefixIndex& index = engine->prefix_cache()->index();
  std::size_t settled = 0;
  for (int i = 0; i < prompts; ++i) {
    engine->submit(request(text(i, 100 + static_cast<std::size_t>(i) % 300), 3));
    if (i % 4 == 3) run(*engine);
    if (i == prompts / 3) settled = resident_bytes();
    ASSERT_LE(engine->core().pool().used_bytes(), engine->core().pool().arena().size());
  }
  run(*engine);
  EXPECT_GT(index.evictions(), prompts / 2);
  std::int64_t known = 0;
  for (std::size_t group = 0; group < engine->core().pool().layout().groups().size(); ++group) {
    known += index.known_pages(static_cast<int>(group));
  }
  EXPECT_EQ(known, engine->core().pool().used_pages());
  // The arena was full at a third of the way: what is allocated since is given back. The sanitizers
  // keep freed memory for a while.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::size_t slack = std::size_t{1} << 30;
#else
  constexpr std::size_t slack = std::size_t{2} << 20;
#endif
  const std::size_t grown = resident_bytes() - std::min(settled, resident_bytes());
  RecordProperty("grown_bytes", static_cast<int>(grown));
  EXPECT_LE(grown, slack);
}

INSTANTIATE_TEST_SUITE_P(Windows, PrefixCacheTest,
                         ::testing::Values(std::vector<int>{0, 0},
                                           std::vector<int>{130, 0, 130, 100},
                                           std::vector<int>{65, 65, 65, 0}),
                         [](const auto& tested) {
                           std::string name = "of";
                           for (const int window : tested.param) {
                             name.append("_").append(std::to_string(window));
                           }
                           return name;
                         });

}  // namespace
}  // namespace octet
