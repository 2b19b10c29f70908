// Real models under a cache that is far too small for what is asked at once.
#include <cstdlib>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "support/test_models.h"

namespace octet {
namespace {

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

class PressureTest : public ::testing::TestWithParam<const char*> {};

// 48 prompts with a prefix in common, a pool of 32 pages: each needs a page of its own, and another
// before its answer ends. OCTET_NIGHT=1 asks for all answers alone; by day a few, which take the
// time that all together take.
TEST_P(PressureTest, FortyEightRequestsInThirtyTwoPagesAnswerAsIfAlone) {
  constexpr std::int64_t answer_tokens = 20;
  const std::shared_ptr<const GgufFile> file = GgufFile::open(real_model_path(GetParam()));
  const std::shared_ptr<Model> model = load_model(file);
  const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::from_gguf(*file);
  const std::string prefix =
      "You are a careful assistant that answers in one short sentence. You never make anything "
      "up, you never repeat the question, and where you do not know an answer you say so. Dates "
      "are written as day, month and year; numbers below twelve are written as words; the names "
      "of ships are set in quotation marks. Think about the question before you answer it.\n";
  const std::string question =
      ", and which year follows the one in which it was first asked, by "
      "whom, of whom, and with what success, if any is known? Say so in few words, please, and "
      "leave out "
      "whatever is not needed to understand the answer.\n";
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 48; ++i) {
    GenerateRequest request;
    request.prompt =
        tokenizer->encode(prefix + "Question " + std::to_string(i) + ": what is " +
                              std::to_string(i * 7) + " plus " + std::to_string(i + 3) + question,
                          SpecialText::literal);
    // The answers grow into their third pages, wherever the tokenizer cuts the text.
    ASSERT_GT(request.prompt.size(), 126u);
    request.prompt.resize(118 + static_cast<std::size_t>(i) % 8);
    request.sampling.max_tokens = answer_tokens;
    request.sampling.ignore_eos = true;
    requests.push_back(std::move(request));
  }

  EngineOptions options = engine_options(TestOptions{.cache = "fp8"}, 256);
  options.limits = {.max_sequences = 48, .max_batched_tokens = 256, .prefill_chunk = 128};
  options.kv_cache_pages = 32;
  Engine engine(model, tokenizer, options);
  std::vector<RequestId> ids;
  for (const GenerateRequest& request : requests) ids.push_back(engine.submit(request));
  std::map<RequestId, Answer> answers = run_all(engine);
  EXPECT_GT(engine.scheduler().preemptions(), 0);
  EXPECT_GT(engine.stats().prefix_hits, 0);
  EXPECT_EQ(engine.core().pool().held_pages(), 0);

  options.prefix_caching = false;
  const std::size_t stride = std::getenv("OCTET_NIGHT") != nullptr ? 1 : 12;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(answers[ids[i]].tokens.size(), static_cast<std::size_t>(answer_tokens)) << i;
    EXPECT_EQ(answers[ids[i]].finished, FinishReason::length) << i;
    if (i % stride != 0) continue;
    Engine alone(model, tokenizer, options);
    const RequestId id = alone.submit(requests[i]);
    EXPECT_EQ(run_all(alone)[id].tokens, answers[ids[i]].tokens) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PressureTest, ::testing::Values("SmolLM2-135M-Instruct.Q4_1.gguf"),
                         [](const auto& tested) {
                           return std::string(tested.param).substr(0, 5) == "gemma" ? "gemma3"
                                                                                    : "SmolLM2";
                         });

}  // namespace
}  // namespace octet
