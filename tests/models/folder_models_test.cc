// Hugging Face folders against transformers in float32 on the weights that the formats' own
// packages decode (tools/oracle/folder_models.py).
#include <cmath>

#include <gtest/gtest.h>

#include "support/test_models.h"

namespace octet {
namespace {

std::string folder_path(const std::string& name) { return data_path("models/folders/" + name); }

class FolderModelTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    answers_ = read_json("models/folders/" + std::string(GetParam()) + ".json");
    model_ = load_model(Checkpoint::open(folder_path(GetParam())));
  }
  Json answers_;
  std::shared_ptr<Model> model_;
};

TEST_P(FolderModelTest, LogitsAreThoseOfTransformers) {
  const auto vocabulary = static_cast<std::size_t>(model_->config().vocabulary_size);
  const auto ids = answers_["ids"].get<std::vector<TokenId>>();
  for (const InstructionSet set : available_instruction_sets()) {
    TestOptions options;
    options.instruction_set = set;
    const std::vector<float> logits = all_logits(model_, ids, options);
    for (std::size_t i = 0; i < answers_["positions"].size(); ++i) {
      const auto position = answers_["positions"][i].get<std::size_t>();
      const auto wanted = answers_["logits"][i].get<std::vector<double>>();
      ASSERT_EQ(wanted.size(), vocabulary);
      for (std::size_t v = 0; v < vocabulary; ++v) {
        EXPECT_NEAR(logits[position * vocabulary + v], wanted[v], 1e-4)
            << name_of(set) << ", position " << position << ", token " << v;
      }
    }
  }
}

TEST_P(FolderModelTest, EndTokensAreTheGenerationConfigs) {
  EXPECT_EQ(model_->config().end_tokens, answers_["end_tokens"].get<std::vector<TokenId>>());
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, FolderModelTest,
                         ::testing::Values("llama_bf16", "llama_ct_static", "llama_ct_channel",
                                           "llama_ct_block", "llama_fp8_blocks", "llama_modelopt",
                                           "qwen2_f32", "gemma3_f16", "gemma3_nested"),
                         [](const auto& tested) { return std::string(tested.param); });

// FP8 codes stay a byte each in memory: views of the file, scales beside them.
TEST(FolderModels, PackedWeightsStayPacked) {
  const auto folder = ModelFolder::open(folder_path("llama_ct_block"));
  int packed = 0;
  for (const StoredTensor& tensor : folder->tensors().tensors()) {
    if (tensor.type != "F8_E4M3") continue;
    ++packed;
    EXPECT_EQ(tensor.view.bytes, static_cast<std::size_t>(tensor.view.elements()));
  }
  EXPECT_EQ(packed, 7);
}

TEST(FolderModels, WindowsAndScalesComeFromTheConfiguration) {
  const ModelConfig config = load_model(Checkpoint::open(folder_path("gemma3_nested")))->config();
  EXPECT_EQ(config.family, "gemma3");
  EXPECT_EQ(config.name, "gemma3_nested");
  ASSERT_EQ(config.attention.size(), 3u);
  EXPECT_EQ(config.attention[0].window, 20);
  EXPECT_EQ(config.attention[1].window, 0);
  EXPECT_EQ(config.ropes[0].linear_factor, 8.0);
  EXPECT_FLOAT_EQ(config.softmax_scale, 1.0f / std::sqrt(24.0f));
  EXPECT_EQ(config.logit_soft_cap, 5.0f);
}

}  // namespace
}  // namespace octet
