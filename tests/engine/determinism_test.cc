// The same prompt gives the same bits: alone, in a batch, in any chunks, on any number of threads,
// whatever the cache's unused bytes hold.
#include <cstring>
#include <map>
#include <string_view>

#include <gtest/gtest.h>

#include "support/test_models.h"

namespace octet {
namespace {

constexpr const char* smollm2 = "SmolLM2-135M-Instruct.Q4_1.gguf";

std::vector<TokenId> sample_tokens(std::size_t count) {
  auto tokens = read_json("goldens/smollm2_sample.json")["ids"].get<std::vector<TokenId>>();
  tokens.resize(count);
  return tokens;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

class DeterminismTest : public ::testing::TestWithParam<const char*> {
 protected:
  // For chunks of any size and one to three threads.
  static void expect_same_logits(const std::shared_ptr<Model>& model,
                                 const std::vector<TokenId>& tokens, InstructionSet set,
                                 Arithmetic arithmetic) {
    TestOptions options;
    options.cache = GetParam();
    options.instruction_set = set;
    options.arithmetic = arithmetic;
    options.threads = 1;
    const std::vector<float> expected = all_logits(model, tokens, options);
    for (const int threads : {1, 2, 3}) {
      options.threads = threads;
      for (const std::int64_t chunk : {1, 7, 64, 65, 511, 0}) {
        options.chunk = chunk;
        EXPECT_TRUE(same_bits(all_logits(model, tokens, options), expected))
            << model->config().family << ", " << name_of(set) << ", chunk " << chunk << ", "
            << threads << " threads";
      }
    }
  }
};

TEST_P(DeterminismTest, LogitsAreTheSameBitsForAnyChunkAndThreads) {
  for (const char* file : {"llama_mixed", "llama_k_quants", "qwen2_biases"}) {
    const std::shared_ptr<Model> model =
        open_model(data_path(std::string("models/") + file + ".gguf"));
    std::vector<TokenId> tokens;
    for (int i = 0; i < 512; ++i) {
      tokens.push_back(static_cast<TokenId>((i * 37 + 11) % model->config().vocabulary_size));
    }
    for (const InstructionSet set : available_instruction_sets()) {
      expect_same_logits(model, tokens, set, Arithmetic::float32);
      expect_same_logits(model, tokens, set, Arithmetic::int16);
      if (file == std::string_view("llama_mixed")) {  // what differs is tested in ops/linear
        expect_same_logits(model, tokens, set, Arithmetic::int8);
      }
      // Kernels of its own there.
      if (set == InstructionSet::avx512_bf16) {
        expect_same_logits(model, tokens, set, Arithmetic::bfloat16);
      }
    }
  }
}

TEST_P(DeterminismTest, RealModelLogitsAreTheSameBitsForAnyChunkAndThreads) {
  const std::shared_ptr<Model> model = open_model(real_model_path(smollm2));
  const std::vector<TokenId> tokens = sample_tokens(150);
  for (const Arithmetic arithmetic : {Arithmetic::float32, Arithmetic::int16}) {
    TestOptions options;
    options.cache = GetParam();
    options.arithmetic = arithmetic;
    options.threads = 1;
    const std::vector<float> expected = all_logits(model, tokens, options);
    for (const std::int64_t chunk : {1, 7, 64, 65}) {
      options.threads = 1 + static_cast<int>(chunk % 3);
      options.chunk = chunk;
      EXPECT_TRUE(same_bits(all_logits(model, tokens, options), expected))
          << name_of(arithmetic) << ", " << chunk;
    }
  }
}

// Long enough that attention takes several of its chunks of 512 keys and merges them.
TEST_P(DeterminismTest, RealModelLogitsAreTheSameBitsPastAnAttentionChunk) {
  const std::shared_ptr<Model> model = open_model(real_model_path(smollm2));
  std::vector<TokenId> tokens = sample_tokens(968);
  const std::vector<TokenId> more = sample_tokens(132);
  tokens.insert(tokens.end(), more.begin(), more.end());
  TestOptions options;
  options.cache = GetParam();
  const std::vector<float> expected = all_logits(model, tokens, options);
  options.threads = 3;
  options.chunk = 512;
  EXPECT_TRUE(same_bits(all_logits(model, tokens, options), expected));
}

// Runs requests through the engine to their ends and returns each answer's tokens and their
// log-probabilities.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  std::string text;
  bool operator==(const Answer&) const = default;
};
std::map<RequestId, Answer> run_all(Engine& engine) {
  std::map<RequestId, Answer> answers;
  while (!engine.idle()) {
    for (const TokenEvent& event : engine.step()) {
      Answer& answer = answers[event.request];
      answer.text += event.text;
      if (event.token < 0) continue;
      answer.tokens.push_back(event.token);
      answer.logprobs.push_back(event.logprobs->logprob);
    }
  }
  return answers;
}

GenerateRequest request_of(std::vector<TokenId> prompt, std::int64_t max_tokens,
                           float temperature) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  request.sampling.temperature = temperature;
  request.sampling.seed = 42;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 0;
  return request;
}

TEST_P(DeterminismTest, AnAnswerIsTheSameAloneAndInABatchOfEight) {
  const std::string path = real_model_path(smollm2);
  const std::shared_ptr<const GgufFile> file = GgufFile::open(path);
  const std::shared_ptr<Model> model = load_model(file);
  const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::from_gguf(*file);
  const std::vector<TokenId> text = sample_tokens(400);
  std::vector<GenerateRequest> requests;
  for (std::size_t i = 0; i < 8; ++i) {
    const std::vector<TokenId> prompt(
        text.begin() + static_cast<std::ptrdiff_t>(i * 7),
        text.begin() + static_cast<std::ptrdiff_t>(i * 7 + 1 + i * 40));
    requests.push_back(request_of(prompt, 8, i % 2 == 0 ? 0.0f : 0.9f));
  }
  const auto make_engine = [&](int threads, std::int64_t chunk, std::int64_t rows) {
    TestOptions options;
    options.cache = GetParam();
    options.threads = threads;
    EngineOptions made = engine_options(options, 512);
    made.limits = {.max_sequences = 8, .max_batched_tokens = rows, .prefill_chunk = chunk};
    return std::make_unique<Engine>(model, tokenizer, made);
  };
  std::vector<Answer> alone;
  for (const GenerateRequest& request : requests) {
    const auto engine = make_engine(1, 0, 512);
    const RequestId id = engine->submit(request);
    alone.push_back(run_all(*engine)[id]);
    EXPECT_EQ(alone.back().tokens.size(), 8u);
  }
  for (const std::int64_t chunk : {0, 64, 33}) {
    const auto engine = make_engine(2, chunk, 200);
    std::vector<RequestId> ids;
    for (const GenerateRequest& request : requests) ids.push_back(engine->submit(request));
    std::map<RequestId, Answer> answers = run_all(*engine);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(answers[ids[i]], alone[i]) << "request " << i << ", chunk " << chunk;
    }
    EXPECT_EQ(engine->core().pool().held_pages(), 0);
  }
}

// Pages of an earlier request give the bits that computing them again would give: also where the
// whole prompt is found and only its last token is computed, from a page that is not written again.
TEST_P(DeterminismTest, AWarmPromptAnswersAsAColdOne) {
  const std::shared_ptr<const GgufFile> file = GgufFile::open(data_path("models/llama_mixed.gguf"));
  const std::shared_ptr<Model> model = load_model(file);
  const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::from_gguf(*file);
  TestOptions options;
  options.cache = GetParam();
  EngineOptions made = engine_options(options, 300);
  made.limits = {.max_sequences = 4, .max_batched_tokens = 96, .prefill_chunk = 96};
  Engine warm(model, tokenizer, made);
  made.prefix_caching = false;
  Engine cold(model, tokenizer, made);
  for (const std::size_t length : {63, 64, 65, 127, 128, 129, 192}) {
    std::vector<TokenId> prompt;
    for (std::size_t i = 0; i < length; ++i) prompt.push_back(static_cast<TokenId>(i * 53 % 300));
    for (const float temperature : {0.0f, 0.8f}) {
      // 200 times for a prompt of two pages; for the others often enough to find the answer's
      // pages.
      const bool often = length == 128 && temperature == 0.0f;
      const int times = often ? 200 : 3;
      const GenerateRequest request = request_of(prompt, often ? 3 : 70, temperature);
      const RequestId cold_id = cold.submit(request);
      const Answer expected = run_all(cold)[cold_id];
      for (int i = 0; i < times; ++i) {
        const RequestId id = warm.submit(request);
        EXPECT_EQ(run_all(warm)[id], expected) << length << ", " << i;
      }
    }
  }
  EXPECT_GE(warm.stats().prefix_hits, 199 * 127);
  EXPECT_EQ(cold.stats().prefix_hits, 0);
}

TEST_P(DeterminismTest, UnusedBytesOfTheCacheReachNoOutput) {
  const std::shared_ptr<Model> model = open_model(data_path("models/llama_mixed.gguf"));
  for (const InstructionSet set : available_instruction_sets()) {
    for (const std::size_t length : {1, 63, 64, 65, 129}) {
      std::vector<TokenId> tokens;
      for (std::size_t i = 0; i < length; ++i) {
        tokens.push_back(static_cast<TokenId>(i * 53 % 300));
      }
      TestOptions options;
      options.cache = GetParam();
      options.instruction_set = set;
      const std::vector<float> expected = all_logits(model, tokens, options);
      for (const float logit : expected) ASSERT_TRUE(std::isfinite(logit));
      for (const std::byte fill : {std::byte{0x7F}, std::byte{0xFF}}) {
        options.cache_fill = fill;
        EXPECT_TRUE(same_bits(all_logits(model, tokens, options), expected))
            << name_of(set) << ", " << length << " tokens";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Caches, DeterminismTest,
                         ::testing::Values("float32", "bfloat16", "fp8", "int8:fp8"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           for (char& c : name) c = c == ':' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace octet
