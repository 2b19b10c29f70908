// Real models under a cache that is far too small for what is asked at once.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "support/test_models.h"

namespace octet {
namespace {

constexpr const char* smollm2 = "SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr const char* gemma3 = "gemma-3-270m.Q4_K_M.gguf";  // windows of 512 in 15 of 18 layers

struct Answer {
  std::vector<TokenId> tokens;
  FinishReason finished = FinishReason::none;
};

std::map<RequestId, Answer> run_all(Engine& engine) {
  std::map<RequestId, Answer> answers;
  while (!engine.idle()) {
    for (const TokenEvent& event : engine.step()) {
      Answer& answer = answers[event.request];
      EXPECT_EQ(answer.finished, FinishReason::none) << "an event after the end";
      if (event.token >= 0) answer.tokens.push_back(event.token);
      answer.finished = event.finished;
    }
  }
  return answers;
}

struct Case {
  const char* file;
  std::size_t prompt_tokens;  // of the shortest prompt
};

class PressureTest : public ::testing::TestWithParam<Case> {
 protected:
  PressureTest()
      : model_(load_model(GgufFile::open(real_model_path(GetParam().file)))),
        // For every model: to its numbers any token ids do.
        tokenizer_(Tokenizer::from_gguf(*GgufFile::open(real_model_path(smollm2)))) {}

  // A prefix that all have in common, then 40 tokens or a few more of their own. Prompts end a few
  // tokens before a page does, so that each answer grows into another page.
  std::vector<GenerateRequest> make_requests(std::int64_t answer_tokens) const {
    const std::vector<TokenId> instructions = tokenizer_->encode(
        "You are a careful assistant that answers in one short sentence. You never make anything "
        "up, you never repeat the question, and where you do not know an answer you say so. Dates "
        "are written as day, month and year; numbers below twelve are written as words.\n",
        SpecialText::literal);
    std::vector<GenerateRequest> requests;
    for (int i = 0; i < 48; ++i) {
      GenerateRequest request;
      while (request.prompt.size() < GetParam().prompt_tokens - own_tokens) {
        request.prompt.push_back(instructions[request.prompt.size() % instructions.size()]);
      }
      const std::vector<TokenId> own = tokenizer_->encode(
          "Question " + std::to_string(i) + ": what is " + std::to_string(i * 7) + " plus " +
              std::to_string(i + 3) +
              ", and which year follows the one in which it was first asked, by whom, of whom, and "
              "with what success, if any is known? Say so in few words, please, and leave out "
              "whatever is not needed to understand the answer.\n",
          SpecialText::literal);
      const std::size_t count = own_tokens + static_cast<std::size_t>(i) % 8;
      EXPECT_GE(own.size(), count);
      request.prompt.insert(request.prompt.end(), own.begin(),
                            own.begin() + static_cast<std::ptrdiff_t>(std::min(count, own.size())));
      request.sampling.max_tokens = answer_tokens;
      request.sampling.ignore_eos = true;
      requests.push_back(std::move(request));
    }
    return requests;
  }

  static constexpr std::size_t own_tokens = 40;
  std::shared_ptr<Model> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

// OCTET_NIGHT=1 asks for all answers alone; by day for a few, which take the time that all together
// take.
TEST_P(PressureTest, FortyEightRequestsInThirtyTwoPagesAnswerAsIfAlone) {
  constexpr std::int64_t answer_tokens = 20;
  const std::vector<GenerateRequest> requests = make_requests(answer_tokens);
  EngineOptions options = engine_options(TestOptions{.cache = "fp8"},
                                         static_cast<std::int64_t>(GetParam().prompt_tokens) + 64);
  options.limits = {.max_sequences = 48, .max_batched_tokens = 256, .prefill_chunk = 128};
  options.kv_cache_pages = 32;
  Engine engine(model_, tokenizer_, options);
  std::vector<RequestId> ids;
  for (const GenerateRequest& request : requests) ids.push_back(engine.submit(request));
  std::map<RequestId, Answer> answers = run_all(engine);
  EXPECT_GT(engine.scheduler().preemptions(), 0);
  EXPECT_GT(engine.stats().prefix_hits, 0);
  EXPECT_EQ(engine.core().pool().held_pages(), 0);
  // What the engine itself costs beside the model: choosing rows and pages, drawing tokens, text.
  // 3 % is the aim; a machine that others use may show more.
  const StepTimes times = engine.stats().times;
  const double share =
      (times.schedule + times.sample) / (times.forward_prefill + times.forward_decode);
  RecordProperty("engine_share_of_model", std::to_string(share));
  EXPECT_LT(share, 0.1);

  options.prefix_caching = false;
  const std::size_t stride = std::getenv("OCTET_NIGHT") != nullptr ? 1 : 12;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(answers[ids[i]].tokens.size(), static_cast<std::size_t>(answer_tokens)) << i;
    EXPECT_EQ(answers[ids[i]].finished, FinishReason::length) << i;
    if (i % stride != 0) continue;
    Engine alone(model_, tokenizer_, options);
    const RequestId id = alone.submit(requests[i]);
    EXPECT_EQ(run_all(alone)[id].tokens, answers[ids[i]].tokens) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PressureTest,
                         ::testing::Values(Case{smollm2, 118}, Case{gemma3, 630}),
                         [](const auto& tested) {
                           return tested.param.file == smollm2 ? "SmolLM2" : "gemma3";
                         });

}  // namespace
}  // namespace octet
