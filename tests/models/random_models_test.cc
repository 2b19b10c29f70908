// Small random checkpoints of each family against an independent forward (tools/oracle/README.md
// says how the answers were made, and that transformers agrees with them).
#include <cmath>

#include <gtest/gtest.h>

#include "support/test_models.h"

namespace octet {
namespace {

class RandomModelTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    answers_ = read_json("models/" + std::string(GetParam()) + ".json");
    model_ = open_model(data_path("models/" + std::string(GetParam()) + ".gguf"));
    vocabulary_ = static_cast<std::size_t>(model_->config().vocabulary_size);
  }

  std::vector<TokenId> prompt_ids(const std::string& name) const {
    for (const Json& prompt : answers_["prompts"]) {
      if (prompt["name"] == name) return prompt["ids"].get<std::vector<TokenId>>();
    }
    ADD_FAILURE() << "no prompt " << name;
    return {};
  }

  // The largest difference at `position`, and the deviation of the wanted logits for comparison.
  double largest_difference(const std::vector<float>& logits, std::size_t position,
                            const std::vector<double>& wanted) const {
    EXPECT_EQ(wanted.size(), vocabulary_);
    double largest = 0;
    for (std::size_t v = 0; v < wanted.size(); ++v) {
      largest = std::max(largest, std::fabs(logits[position * vocabulary_ + v] - wanted[v]));
    }
    return largest;
  }

  Json answers_;
  std::shared_ptr<Model> model_;
  std::size_t vocabulary_ = 0;
};

TEST_P(RandomModelTest, LogitsAreTheOraclesInFloat32) {
  for (const InstructionSet set : available_instruction_sets()) {
    for (const Json& prompt : answers_["prompts"]) {
      TestOptions options;
      options.instruction_set = set;
      const auto ids = prompt["ids"].get<std::vector<TokenId>>();
      const std::vector<float> logits = all_logits(model_, ids, options);
      for (std::size_t i = 0; i < prompt["positions"].size(); ++i) {
        const auto position = prompt["positions"][i].get<std::size_t>();
        const auto wanted = prompt["float64"][i].get<std::vector<double>>();
        EXPECT_LT(largest_difference(logits, position, wanted), 2e-4)
            << name_of(set) << ", prompt " << prompt["name"] << ", position " << position;
      }
    }
  }
}

// A rounded cache moves logits by far more than two honest engines differ on the same rounding:
// both round the same values, but for a few that lie next to a tie.
TEST_P(RandomModelTest, EachCachePolicyMovesLogitsAsTheOracles) {
  const TestOptions exact;
  for (const Json& policy : answers_["kv_policies"]) {
    const std::string dtype = policy["dtype"];
    const std::string scales = policy["scales"];
    const std::vector<TokenId> ids = prompt_ids(policy["prompt"]);
    const auto position = policy["position"].get<std::size_t>();
    const auto wanted = policy["logits"].get<std::vector<double>>();
    TestOptions options;
    options.cache = dtype;
    options.scales = scales == "unit" ? "unit" : "auto";
    const std::vector<float> logits = all_logits(model_, ids, options);
    const std::vector<float> unrounded = all_logits(model_, ids, exact);
    double squared_error = 0;
    double squared_effect = 0;
    for (std::size_t v = 0; v < vocabulary_; ++v) {
      const std::size_t at = position * vocabulary_ + v;
      squared_error += std::pow(logits[at] - wanted[v], 2);
      squared_effect += std::pow(unrounded[at] - wanted[v], 2);
    }
    EXPECT_GT(squared_effect, 0) << dtype;
    EXPECT_LT(std::sqrt(squared_error), 0.25 * std::sqrt(squared_effect)) << dtype << " " << scales;
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, RandomModelTest,
                         ::testing::Values("llama_mixed", "llama_wide_heads", "llama_k_quants",
                                           "llama_rope_scaling", "qwen2_biases", "gemma3_windows",
                                           "gemma3_scaled"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace octet
