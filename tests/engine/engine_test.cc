// The engine's promises on a small random model: nothing lost, preemption invisible, limits kept.
#include "engine/engine.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/context_model.h"
#include "support/test_models.h"

namespace octet {
namespace {

class EngineTest : public ::testing::Test {
 protected:
  EngineTest()
      : file_(GgufFile::open(data_path("models/llama_mixed.gguf"))),
        model_(load_model(file_)),
        tokenizer_(Tokenizer::from_gguf(*file_)) {}

  EngineOptions options(std::int64_t pages = 0) const {
    EngineOptions made = engine_options(TestOptions{.cache = "fp8"}, 200);
    made.limits = {.max_sequences = 6, .max_batched_tokens = 64, .prefill_chunk = 32};
    if (pages > 0) {
      const KvLayout layout(model_->config().kv_geometry(),
                            make_kv_policy(made.cache, model_->config().layers));
      made.kv_cache_bytes = static_cast<std::size_t>(pages) * PagePool::slab_bytes(layout);
    }
    return made;
  }

  GenerateRequest request(int seed, std::size_t length, std::int64_t max_tokens) const {
    GenerateRequest made;
    for (std::size_t i = 0; i < length; ++i) {
      made.prompt.push_back(
          static_cast<TokenId>((static_cast<std::size_t>(seed) * 101 + i * 17) % 300));
    }
    made.sampling.max_tokens = max_tokens;
    made.sampling.ignore_eos = true;
    return made;
  }

  struct Answer {
    std::vector<TokenId> tokens;
    std::string text;
    FinishReason finished = FinishReason::none;
  };
  static void step(Engine& engine, std::map<RequestId, Answer>* answers) {
    for (const TokenEvent& event : engine.step()) {
      Answer& answer = (*answers)[event.request];
      EXPECT_EQ(answer.finished, FinishReason::none) << "an event after the end";
      if (event.token >= 0) answer.tokens.push_back(event.token);
      answer.text += event.text;
      answer.finished = event.finished;
    }
  }
  static std::map<RequestId, Answer> run(Engine& engine) {
    std::map<RequestId, Answer> answers;
    int steps = 0;
    while (!engine.idle() && ++steps < 100000) step(engine, &answers);
    EXPECT_TRUE(engine.idle());
    return answers;
  }

  std::string message_of(Engine& engine, GenerateRequest asked) {
    try {
      engine.submit(std::move(asked));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      return error.what();
    }
    return "no error";
  }

  std::shared_ptr<const GgufFile> file_;
  std::shared_ptr<Model> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(EngineTest, PreemptedSequencesAnswerAsIfAlone) {
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(request(i, 20 + static_cast<std::size_t>(i) * 9, 60));
  }
  std::vector<std::vector<TokenId>> alone;
  for (const GenerateRequest& asked : requests) {
    Engine engine(model_, tokenizer_, options());
    const RequestId id = engine.submit(asked);
    alone.push_back(run(engine)[id].tokens);
    ASSERT_EQ(alone.back().size(), 60u);
  }
  Engine engine(model_, tokenizer_, options(5));
  std::vector<RequestId> ids;
  for (const GenerateRequest& asked : requests) ids.push_back(engine.submit(asked));
  std::map<RequestId, Answer> answers = run(engine);
  EXPECT_GT(engine.scheduler().preemptions(), 0);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(answers[ids[i]].tokens, alone[i]) << i;
    EXPECT_EQ(answers[ids[i]].finished, FinishReason::length) << i;
  }
  EXPECT_EQ(engine.core().pool().held_pages(), 0);
}

TEST_F(EngineTest, PromptsAtPageEdgesAnswerAndGiveTheirPagesBack) {
  for (const std::size_t length : {1, 63, 64, 65, 127, 128, 129, 199}) {
    Engine engine(model_, tokenizer_, options());
    const RequestId id = engine.submit(request(1, length, 1000));
    const std::map<RequestId, Answer> answers = run(engine);
    // The context of 200 tokens cuts the answer.
    EXPECT_EQ(answers.at(id).tokens.size(), 200 - length);
    EXPECT_EQ(answers.at(id).finished, FinishReason::length);
    EXPECT_EQ(engine.core().pool().held_pages(), 0);
    // The last token of the answer is never written.
    EXPECT_EQ(engine.core().pool().peak_held_pages(), (199 + 63) / 64);
  }
}

TEST_F(EngineTest, WhatCannotBeAnsweredIsRefusedByName) {
  Engine engine(model_, tokenizer_, options());
  EXPECT_NE(message_of(engine, request(1, 0, 5)).find("prompt is empty"), std::string::npos);
  EXPECT_NE(message_of(engine, request(1, 200, 5)).find("200 tokens"), std::string::npos);
  GenerateRequest strange = request(1, 3, 5);
  strange.prompt[1] = 1 << 20;
  EXPECT_NE(message_of(engine, strange).find("1048576"), std::string::npos);
  strange.prompt[1] = -1;
  EXPECT_NE(message_of(engine, strange).find("-1"), std::string::npos);
  EXPECT_TRUE(engine.idle());
}

TEST_F(EngineTest, ACacheThatCannotHoldOneTextIsRefused) {
  EXPECT_THROW(Engine(model_, tokenizer_, options(3)), Error);  // 200 tokens take 4 pages
  EngineOptions too_long = options();
  too_long.max_model_len = model_->config().max_positions + 1;
  EXPECT_THROW(Engine(model_, tokenizer_, too_long), Error);
}

TEST_F(EngineTest, CancelledRequestsEndAtTheNextStepAndFreeTheirPages) {
  Engine engine(model_, tokenizer_, options());
  const RequestId kept = engine.submit(request(1, 50, 20));
  const RequestId running = engine.submit(request(2, 50, 100));
  const RequestId prefilling = engine.submit(request(3, 190, 5));
  std::vector<RequestId> queued;
  for (int i = 0; i < 8; ++i) queued.push_back(engine.submit(request(4 + i, 10, 5)));
  std::map<RequestId, Answer> answers;
  for (int i = 0; i < 4; ++i) step(engine, &answers);
  engine.cancel(running);
  engine.cancel(prefilling);
  engine.cancel(queued.back());
  engine.cancel(999);
  while (!engine.idle()) step(engine, &answers);
  EXPECT_EQ(answers[running].finished, FinishReason::cancelled);
  EXPECT_EQ(answers[prefilling].finished, FinishReason::cancelled);
  EXPECT_EQ(answers[queued.back()].finished, FinishReason::cancelled);
  EXPECT_EQ(answers[kept].tokens.size(), 20u);
  for (std::size_t i = 0; i + 1 < queued.size(); ++i) {
    EXPECT_EQ(answers[queued[i]].tokens.size(), 5u);
  }
  EXPECT_EQ(engine.core().pool().held_pages(), 0);
}

TEST_F(EngineTest, DecodesGoOnWhileAPromptIsRead) {
  Engine engine(model_, tokenizer_, options());
  const RequestId first = engine.submit(request(1, 5, 50));
  engine.step();
  const RequestId second = engine.submit(request(2, 190, 5));
  int steps_of_prefill = 0;
  for (bool started = false; !started; ++steps_of_prefill) {
    ASSERT_LT(steps_of_prefill, 20);
    int first_tokens = 0;
    for (const TokenEvent& event : engine.step()) {
      first_tokens += event.request == first ? 1 : 0;
      started = started || event.request == second;
    }
    EXPECT_EQ(first_tokens, 1);
  }
  EXPECT_EQ(steps_of_prefill, (190 + 31) / 32);
  run(engine);
}

// As `octet serve` runs: a prompt of 7,000 tokens is read while another answers, and each of that
// one's tokens waits for one chunk of the prompt and no more.
TEST_F(EngineTest, ALongPromptDelaysATokenByOneChunk) {
  constexpr std::int64_t chunk = 128;
  const auto model = std::make_shared<ContextModel>(tokenizer_->vocabulary_size());
  EngineOptions made = options();
  made.max_model_len = 8192;
  made.limits = {.max_sequences = 32,
                 .max_batched_tokens = 512,
                 .prefill_chunk = 512,
                 .prefill_beside_decodes = chunk};
  made.kv_cache_pages = 256;
  Engine engine(model, tokenizer_, made);
  const RequestId first = engine.submit(request(1, 5, 100));
  engine.step();
  const RequestId second = engine.submit(request(2, 7000, 3));
  std::int64_t steps = 0;
  for (bool started = false; !started; ++steps) {
    ASSERT_LT(steps, 100);
    const std::int64_t rows_before = model->rows;
    int tokens = 0;
    for (const TokenEvent& event : engine.step()) {
      tokens += event.request == first ? 1 : 0;
      started = started || event.request == second;
    }
    EXPECT_EQ(tokens, 1) << "a step without a token for who waits";
    EXPECT_LE(model->rows - rows_before, chunk + 1);
  }
  EXPECT_EQ(steps, (7000 + chunk - 1) / chunk);
  run(engine);
}

TEST_F(EngineTest, TheSameSeedGivesTheSameAnswerAndAnotherDoesNot) {
  const auto answer = [&](std::uint64_t seed) {
    Engine engine(model_, tokenizer_, options());
    GenerateRequest asked = request(1, 30, 40);
    asked.sampling.temperature = 1.0f;
    asked.sampling.seed = seed;
    const RequestId id = engine.submit(std::move(asked));
    return run(engine)[id].tokens;
  };
  EXPECT_EQ(answer(7), answer(7));
  EXPECT_NE(answer(7), answer(8));
}

TEST_F(EngineTest, StopStringsEndTheAnswerBeforeThem) {
  Engine engine(model_, tokenizer_, options());
  const RequestId id = engine.submit(request(1, 30, 100));
  const std::string whole = run(engine)[id].text;
  ASSERT_GT(whole.size(), 30u);
  // A stop string from the middle, which no token need begin with.
  std::size_t at = whole.size() / 2;
  while ((static_cast<unsigned char>(whole[at]) & 0xC0) == 0x80) ++at;
  const std::string stop = whole.substr(at, 3);
  GenerateRequest asked = request(1, 30, 100);
  asked.sampling.stop = {stop};
  const RequestId stopped = engine.submit(std::move(asked));
  const Answer answer = run(engine)[stopped];
  EXPECT_EQ(answer.text, whole.substr(0, whole.find(stop)));
  EXPECT_EQ(answer.finished, FinishReason::stop);
}

TEST_F(EngineTest, StopTokensEndTheAnswerAndGiveNoText) {
  Engine engine(model_, tokenizer_, options());
  const RequestId whole_id = engine.submit(request(1, 30, 40));
  const Answer whole = run(engine)[whole_id];
  const TokenId stop = whole.tokens[20];
  const auto first = std::find(whole.tokens.begin(), whole.tokens.end(), stop);
  GenerateRequest asked = request(1, 30, 40);
  asked.sampling.stop_token_ids = {stop};
  const RequestId id = engine.submit(asked);
  const Answer stopped = run(engine)[id];
  EXPECT_EQ(stopped.finished, FinishReason::stop);
  EXPECT_EQ(stopped.tokens, std::vector<TokenId>(whole.tokens.begin(), first + 1));
  EXPECT_EQ(whole.text.rfind(stopped.text, 0), 0u);
  // With min_tokens the token is not even drawn, and a stop string is text like any other.
  asked.sampling.min_tokens = 30;
  asked.sampling.stop = {whole.text.substr(0, 1)};
  const RequestId longer_id = engine.submit(asked);
  const Answer longer = run(engine)[longer_id];
  EXPECT_GE(longer.tokens.size(), 30u);
  EXPECT_EQ(std::count(longer.tokens.begin(), longer.tokens.begin() + 30, stop), 0);
}

TEST_F(EngineTest, ABiasedTokenIsDrawnAndItsLogprobStaysTheModels) {
  Engine engine(model_, tokenizer_, options());
  GenerateRequest asked = request(1, 10, 1);
  asked.sampling.logprobs = 0;
  asked.sampling.logit_bias = {{42, 100.0f}};
  engine.submit(asked);
  std::vector<TokenEvent> events;
  while (!engine.idle()) engine.step(&events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].token, 42);
  const std::vector<float> logits = all_logits(model_, asked.prompt, TestOptions{.cache = "fp8"});
  const auto vocabulary = static_cast<std::size_t>(model_->config().vocabulary_size);
  const std::span<const float> last = std::span(logits).last(vocabulary);
  EXPECT_EQ(events[0].logprobs->logprob, compute_logprobs(last, 42, 0).logprob);
  asked.sampling.logit_bias = {{1 << 20, 1.0f}};
  EXPECT_NE(message_of(engine, asked).find("logit_bias holds token id 1048576"), std::string::npos);
}

TEST_F(EngineTest, APromptsLogprobsComeOnceInOrderWhateverTheChunksAndPreemptions) {
  const std::vector<TokenId> prompt = request(1, 150, 1).prompt;
  const std::vector<float> logits = all_logits(model_, prompt, TestOptions{.cache = "fp8"});
  const auto vocabulary = static_cast<std::size_t>(model_->config().vocabulary_size);
  for (const std::int64_t pages : {std::int64_t{0}, std::int64_t{5}}) {
    for (const std::int64_t max_tokens : {0, 20}) {
      Engine engine(model_, tokenizer_, options(pages));
      for (int i = 2; i < 5; ++i) engine.submit(request(i, 60, 60));
      GenerateRequest asked = request(1, 150, max_tokens);
      asked.sampling.prompt_logprobs = 2;
      const RequestId id = engine.submit(asked);
      std::vector<TokenLogprobs> told;
      std::size_t tokens = 0;
      std::vector<TokenEvent> events;
      while (!engine.idle()) engine.step(&events);
      for (const TokenEvent& event : events) {
        if (event.request != id) continue;
        EXPECT_TRUE(tokens == 0 || event.prompt_logprobs.empty());
        tokens += event.token >= 0 ? 1 : 0;
        told.insert(told.end(), event.prompt_logprobs.begin(), event.prompt_logprobs.end());
      }
      EXPECT_EQ(tokens, static_cast<std::size_t>(max_tokens));
      ASSERT_EQ(told.size(), prompt.size() - 1);
      for (std::size_t i = 0; i < told.size(); ++i) {
        const TokenLogprobs expected = compute_logprobs(
            std::span(logits).subspan(i * vocabulary, vocabulary), prompt[i + 1], 2);
        EXPECT_EQ(told[i].logprob, expected.logprob) << i;
        EXPECT_EQ(told[i].top, expected.top) << i;
      }
    }
  }
}

TEST_F(EngineTest, PenaltiesCountTheAnswerAlsoAfterAPreemption) {
  GenerateRequest asked = request(1, 40, 60);
  asked.sampling.frequency_penalty = 1.5f;
  asked.sampling.repetition_penalty = 1.3f;
  Engine alone(model_, tokenizer_, options());
  const RequestId alone_id = alone.submit(asked);
  const Answer expected = run(alone)[alone_id];
  Engine engine(model_, tokenizer_, options(5));
  for (int i = 2; i < 8; ++i) engine.submit(request(i, 60, 60));
  const RequestId id = engine.submit(asked);
  EXPECT_EQ(run(engine)[id].tokens, expected.tokens);
  EXPECT_GT(engine.scheduler().preemptions(), 0);
  const RequestId plain_id = alone.submit(request(1, 40, 60));
  EXPECT_NE(run(alone)[plain_id].tokens, expected.tokens);
}

}  // namespace
}  // namespace octet
