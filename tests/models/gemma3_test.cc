// The windows of gemma3: which layers have one, that chunks change no bit past it, and that its
// pages go back. The logits of its small checkpoints are in random_models_test.cc.
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "engine/sampler.h"
#include "support/test_models.h"

namespace octet {
namespace {

constexpr const char* real_file = "gemma-3-270m.Q4_K_M.gguf";

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::shared_ptr<Model> small_model() { return open_model(data_path("models/gemma3_windows.gguf")); }

TEST(Gemma3, EachSixthLayerSeesEverything) {
  const ModelConfig config = open_model(real_model_path(real_file))->config();
  ASSERT_EQ(config.attention.size(), 18u);
  for (std::size_t layer = 0; layer < 18; ++layer) {
    const bool full = layer % 6 == 5;
    EXPECT_EQ(config.attention[layer].window, full ? 0 : 512) << layer;
    const RopeConfig& rope = config.ropes[static_cast<std::size_t>(config.attention[layer].rope)];
    EXPECT_EQ(rope.theta, full ? 1e6 : 1e4) << layer;
  }
  EXPECT_EQ(config.softmax_scale, 1.0f / 16);
  EXPECT_FLOAT_EQ(config.embedding_scale, 25.298221f);
  EXPECT_EQ(config.logit_soft_cap, 0.0f);
  const KvLayout layout(config.kv_geometry(), make_kv_policy({}, config.layers));
  ASSERT_EQ(layout.groups().size(), 2u);
  EXPECT_EQ(layout.groups()[0].layers.size(), 15u);
  EXPECT_EQ(layout.groups()[1].layers.size(), 3u);
}

TEST(Gemma3, LogitsAreTheSameBitsForAnyChunkAndThreads) {
  const std::shared_ptr<Model> model = small_model();
  std::vector<TokenId> tokens;
  for (int i = 0; i < 300; ++i) tokens.push_back((i * 37 + 11) % 359);
  for (const char* cache : {"float32", "fp8", "int8"}) {
    for (const InstructionSet set : available_instruction_sets()) {
      TestOptions options;
      options.cache = cache;
      options.instruction_set = set;
      // Unused bytes, those of pages that come back for other tokens among them, reach no output.
      options.cache_fill = std::byte{0x7F};
      const std::vector<float> expected = all_logits(model, tokens, options);
      options.cache_fill = std::byte{0xFF};
      for (const std::int64_t chunk : {1, 7, 64, 65, 299, 0}) {
        options.threads = 1 + static_cast<int>(chunk % 3);
        options.chunk = chunk;
        EXPECT_TRUE(same_bits(all_logits(model, tokens, options), expected))
            << cache << ", " << name_of(set) << ", chunk " << chunk;
      }
    }
  }
}

// Two spans of a text, one past the window; logits after each `every`-th token.
TEST(Gemma3, RealModelLogitsAndChoicesAreTheGoldens) {
  constexpr double logit_bound = 5e-3;
  constexpr double clear_gap = 1e-2;
  const std::shared_ptr<Model> model = open_model(real_model_path(real_file));
  const Json goldens = read_json("goldens/gemma3_270m.json");
  const auto probe_ids = goldens["probe_ids"].get<std::vector<std::size_t>>();
  int choices = 0;
  for (const Json& prompt : goldens["prompts"]) {
    const auto tokens = prompt["ids"].get<std::vector<TokenId>>();
    const auto every = prompt["every"].get<std::int64_t>();
    const auto count = static_cast<std::int64_t>(tokens.size());
    EngineCore core(model, engine_options({}, count));
    std::size_t chunk = 0;
    run_in_chunks(
        core, tokens, [every](std::int64_t) { return every; }, WantedLogits::last,
        [&](std::span<const float> logits) {
          // Group 0 is that of the windowed layers: 512 keys lie in at most 9 pages, a chunk of 50
          // in one more; group 1 keeps everything.
          const std::int64_t end = every * static_cast<std::int64_t>(chunk + 1);
          EXPECT_LE(core.pool().used_pages(0), 512 / page_tokens + 1 + 1);
          EXPECT_EQ(core.pool().used_pages(1), (end + page_tokens - 1) / page_tokens);
          const Json& row = prompt["rows"][chunk++];
          ASSERT_EQ(row["position"].get<std::int64_t>() + 1, end);
          for (const Json& top : row["top"]) {
            EXPECT_NEAR(logits[top[0].get<std::size_t>()], top[1].get<double>(), logit_bound)
                << end;
          }
          for (const Json& probe : prompt["probes"]) {
            if (probe["position"] != row["position"]) continue;
            for (std::size_t i = 0; i < probe_ids.size(); ++i) {
              EXPECT_NEAR(logits[probe_ids[i]], probe["logits"][i].get<double>(), logit_bound)
                  << end;
            }
          }
          if (row["gap"].get<double>() <= clear_gap) return;
          ++choices;
          EXPECT_EQ(most_likely(logits), row["argmax"].get<TokenId>()) << end;
        });
    EXPECT_EQ(chunk, prompt["rows"].size());
  }
  EXPECT_GT(choices, 100);
}

TEST(Gemma3, RealModelLogitsAreTheSameBitsPastTheWindow) {
  const std::shared_ptr<Model> model = open_model(real_model_path(real_file));
  auto tokens =
      read_json("goldens/gemma3_270m.json")["prompts"][1]["ids"].get<std::vector<TokenId>>();
  tokens.resize(650);
  // The logits after the last token, read in chunks, the last `tail` tokens in chunks of their own.
  const auto last_logits = [&](std::int64_t chunk, int threads, std::int64_t tail = 0,
                               std::int64_t tail_chunk = 1) {
    TestOptions options;
    options.threads = threads;
    options.cache = "fp8";
    EngineCore core(model, engine_options(options, 650));
    std::vector<float> last;
    run_in_chunks(
        core, tokens,
        [&](std::int64_t at) {
          return at < 650 - tail ? std::min(chunk, 650 - tail - at) : tail_chunk;
        },
        WantedLogits::last,
        [&](std::span<const float> part) { last.assign(part.begin(), part.end()); });
    return last;
  };
  const std::vector<float> whole = last_logits(650, 2);
  EXPECT_TRUE(same_bits(last_logits(512, 2), whole));
  EXPECT_TRUE(same_bits(last_logits(65, 1), whole));
  EXPECT_TRUE(same_bits(last_logits(64, 3), whole));
  EXPECT_TRUE(same_bits(last_logits(512, 2, 70, 7), whole));
  EXPECT_TRUE(same_bits(last_logits(512, 2, 30, 1), whole));
}

}  // namespace
}  // namespace octet
