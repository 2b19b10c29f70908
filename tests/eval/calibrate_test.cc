#include "eval/calibrate.h"

#include <cmath>
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "core/error.h"
#include "files/write_file.h"
#include "kv/element_order.h"
#include "kv/kv_scales.h"
#include "support/test_models.h"

namespace octet {
namespace {

std::vector<TokenId> some_tokens(int seed, int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((seed * 101 + i * 37 + i * i % 11) % 300);
  return tokens;
}

class CalibrateTest : public ::testing::Test {
 protected:
  CalibrateTest() : model_(open_model(data_path("models/qwen2_biases.gguf"))) {}

  Calibration run(const std::vector<std::vector<TokenId>>& texts, CalibrationOptions options = {}) {
    return calibrate(model_, engine_options(TestOptions{}, 0), texts, options, {});
  }

  std::shared_ptr<Model> model_;
};

// Against the keys and values as a float32 cache holds them.
TEST_F(CalibrateTest, RangesAreThoseOfAnExactCache) {
  const std::vector<TokenId> tokens = some_tokens(1, 150);
  EngineCore core(model_, engine_options(TestOptions{}, 150));
  BlockTable blocks(core.pool());
  ASSERT_TRUE(blocks.grow_to(150));
  RunnerRows rows;
  rows.blocks = &blocks;
  rows.tokens = tokens;
  core.runner().run({&rows, 1});
  const Calibration calibration = run({tokens});
  EXPECT_EQ(calibration.tokens, 150);
  for (int layer = 0; layer < model_->config().layers; ++layer) {
    const KvLayerView view = core.pool().layer_view(layer);
    const KvRunLayout& run = view.group->run;
    const LayerRanges& ranges = calibration.layers[static_cast<std::size_t>(layer)];
    EXPECT_EQ(ranges.rows, 150);
    for (int head = 0; head < view.group->geometry.kv_heads; ++head) {
      float key = 0;
      float value = 0;
      for (int token = 0; token < 150; ++token) {
        const std::byte* bytes =
            view.run(blocks.pages(0)[static_cast<std::size_t>(token / 64)], head);
        for (int i = 0; i < run.head_dim; ++i) {
          float number = 0;
          std::memcpy(&number,
                      bytes + run.key_offset +
                          element_offset(run.key_order, 4, run.head_dim, token % 64, i),
                      4);
          key = std::max(key, std::fabs(number));
          std::memcpy(&number,
                      bytes + run.value_offset +
                          element_offset(run.value_order, 4, run.head_dim, token % 64, i),
                      4);
          value = std::max(value, std::fabs(number));
        }
      }
      EXPECT_EQ(ranges.key[static_cast<std::size_t>(head)], key);
      EXPECT_EQ(ranges.value[static_cast<std::size_t>(head)], value);
    }
    EXPECT_EQ(ranges.query.size(), static_cast<std::size_t>(model_->config().query_heads));
    for (const float query : ranges.query) EXPECT_GT(query, 0);
  }
}

// llm-compressor's documented recipe keeps the last batch's ranges alone; these are everything's.
TEST_F(CalibrateTest, RangesOnlyWidenWhateverComesLast) {
  const std::vector<TokenId> first = some_tokens(1, 100);
  const std::vector<TokenId> second = some_tokens(5, 40);
  const Calibration of_first = run({first});
  const Calibration of_second = run({second});
  for (const auto& texts : {std::vector{first, second}, std::vector{second, first}}) {
    const Calibration both = run(texts);
    EXPECT_EQ(both.tokens, 140);
    for (std::size_t layer = 0; layer < both.layers.size(); ++layer) {
      for (std::size_t head = 0; head < both.layers[layer].key.size(); ++head) {
        EXPECT_EQ(both.layers[layer].key[head],
                  std::max(of_first.layers[layer].key[head], of_second.layers[layer].key[head]));
        EXPECT_EQ(both.layers[layer].value[head], std::max(of_first.layers[layer].value[head],
                                                           of_second.layers[layer].value[head]));
      }
    }
  }
}

// The same recipe as the built-in text's (engine/key_mean_sums.h), texts weighed by their tokens.
TEST_F(CalibrateTest, KeyMeansAreThoseOfEachTextByItsTokens) {
  const std::vector<TokenId> first = some_tokens(1, 100);
  const std::vector<TokenId> second = some_tokens(5, 40);
  const auto of_first = run({first}).key_means;
  const auto of_second = run({second}).key_means;
  const auto both = run({first, second}).key_means;
  std::vector<TokenId> joined = first;
  joined.insert(joined.end(), second.begin(), second.end());
  EXPECT_EQ(run({joined}, {.window_tokens = 100}).key_means, both);
  EXPECT_NE(run({joined}).key_means, both);
  ASSERT_EQ(both.size(), static_cast<std::size_t>(model_->config().layers));
  for (std::size_t layer = 0; layer < both.size(); ++layer) {
    ASSERT_GT(both[layer].size(), 0u);
    for (std::size_t i = 0; i < both[layer].size(); ++i) {
      const double expected = (100.0 * of_first[layer][i] + 40.0 * of_second[layer][i]) / 140;
      EXPECT_NEAR(both[layer][i], expected, 1e-6 * (1 + std::fabs(expected)));
      EXPECT_NE(of_first[layer][i], 0.0f);
    }
  }
}

TEST_F(CalibrateTest, TextsAreCutToTheLimitAndIntoWindows) {
  const std::vector<TokenId> tokens = some_tokens(2, 100);
  EXPECT_EQ(run({tokens, tokens}, {.max_tokens = 130}).tokens, 130);
  EXPECT_EQ(run({tokens, tokens}, {.max_tokens = 7}).tokens, 7);
  EXPECT_EQ(run({tokens}, {.window_tokens = 30}).tokens, 100);
  std::int64_t last = 0;
  calibrate(model_, engine_options(TestOptions{}, 0), std::vector{tokens, tokens}, {},
            [&last](std::int64_t done) {
              EXPECT_GT(done, last);
              last = done;
            });
  EXPECT_EQ(last, 200);
  EXPECT_THROW(run({}), Error);
  EXPECT_THROW(run({{}}), Error);
}

// A file that is loaded back gives the scales bit for bit.
TEST_F(CalibrateTest, ScalesComeBackBitForBit) {
  const Calibration calibration = run({some_tokens(3, 120)});
  const std::vector<KvLayerGeometry> geometry = model_->config().kv_geometry();
  const std::string path = (std::filesystem::temp_directory_path() /
                            ("octet_calibrate_" + std::to_string(getpid()) + ".safetensors"))
                               .string();
  for (const bool per_head : {false, true}) {
    const CalibrationOptions options{.per_head = per_head, .includes_query = true};
    const std::vector<FloatTensor> tensors = scale_tensors(calibration, options);
    EXPECT_EQ(tensors.size(), 3 * geometry.size());
    write_file_atomically(path, encode_safetensors(tensors));
    const KvPolicy policy = make_kv_policy({.dtype = "fp8", .scales = path}, geometry);
    EXPECT_EQ(policy.scales_name, per_head ? "head" : "tensor");
    const int query_group = model_->config().query_heads / geometry[0].kv_heads;
    for (std::size_t layer = 0; layer < geometry.size(); ++layer) {
      const LayerRanges& ranges = calibration.layers[layer];
      const auto largest = [](const std::vector<float>& heads) {
        return *std::max_element(heads.begin(), heads.end());
      };
      for (std::size_t head = 0; head < ranges.key.size(); ++head) {
        const float key = per_head ? ranges.key[head] : largest(ranges.key);
        const float value = per_head ? ranges.value[head] : largest(ranges.value);
        float query = largest(ranges.query);
        if (per_head) {
          const auto first = ranges.query.begin() + static_cast<long>(head) * query_group;
          query = *std::max_element(first, first + query_group);
        }
        EXPECT_EQ(policy.constants[layer].key_scales[head], key / 448.0f);
        EXPECT_EQ(policy.constants[layer].value_scales[head], value / 448.0f);
        EXPECT_EQ(policy.constants[layer].query_scales[head], query / 448.0f);
      }
    }
  }
  std::filesystem::remove(path);
  EXPECT_EQ(scale_of(448.0f), 1.0f);
  EXPECT_EQ(scale_of(0.0f), 1.0f);
}

// The configuration is what compressed-tensors itself writes for the same scheme (frozen by
// tools/oracle/check_calibration.py --freeze).
TEST_F(CalibrateTest, TheConfigurationIsCompressedTensorsOwn) {
  const Json frozen = read_json("kv/quantization_config.json");
  for (const bool per_head : {false, true}) {
    const Json written = parse_json(
        quantization_config_json({.per_head = per_head, .includes_query = true}, "LlamaAttention"),
        "written")["quantization_config"];
    const Json& expected = frozen[per_head ? "attn_head" : "tensor"];
    EXPECT_EQ(written["quant_method"], expected["quant_method"]);
    EXPECT_EQ(written["kv_cache_scheme"], expected["kv_cache_scheme"]);
    EXPECT_EQ(written["config_groups"], expected["config_groups"]);
    EXPECT_EQ(written["ignore"], expected["ignore"]);
    EXPECT_TRUE(parse_json(quantization_config_json({.per_head = per_head}, "LlamaAttention"),
                           "written")["quantization_config"]["config_groups"]
                    .empty());
  }
}

// A model that writes nothing: every layer is observed, or there is no file.
class SilentModel : public Model {
 public:
  SilentModel() {
    config_.layers = 2;
    config_.attention.resize(2);
    config_.kv_heads = config_.query_heads = 1;
    config_.head_dim = 8;
    config_.vocabulary_size = 10;
    config_.max_positions = 100;
  }
  const ModelConfig& config() const override { return config_; }
  void forward(const OpContext&, const ForwardBatch&, float*) override {}

 private:
  ModelConfig config_;
};

TEST(Calibrate, ALayerThatWasNotObservedIsAnError) {
  const std::vector<std::vector<TokenId>> texts = {{1, 2, 3}};
  try {
    calibrate(std::make_shared<SilentModel>(), engine_options(TestOptions{}, 0), texts, {}, {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("layer 0"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace octet
