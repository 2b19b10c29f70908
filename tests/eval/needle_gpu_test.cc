// Needles in texts as long as Llama's, on a GPU: what the accumulation of its FP8 tensor cores
// decides.
#include <cstdlib>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/cuda/device.h"
#include "core/error.h"
#include "eval/needle.h"
#include "support/temporary_folder.h"
#include "support/test_models.h"
#include "text/tokenizer_json.h"

namespace octet {
namespace {

constexpr std::int64_t context = 131072;

class NeedleGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string command = fmt::format("python3 -B {}/tools/make_needle_model.py {}",
                                            OCTET_SOURCE_ROOT, folder_.path());
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    const Checkpoint checkpoint = Checkpoint::open(folder_.path());
    tokenizer_ = tokenizer_from_folder(*checkpoint.folder);
    LoadOptions options;
    options.device = Device::cuda;
    model_ = load_model(checkpoint, options);
  }

  std::int64_t right(const char* cache, AttentionAccumulation accumulation) {
    EngineOptions options;
    options.cache = {.dtype = cache};
    options.accumulation = accumulation;
    options.max_model_len = context;
    options.kv_cache_pages = needle_pages(needle_);
    options.limits.max_sequences = needle_.batch;
    options.limits.max_batched_tokens = needle_.chunk;
    EngineCore core(model_, options);
    std::int64_t sum = 0;
    for (const NeedleCell& cell : evaluate_needle(core, *tokenizer_, needle_, {}))
      sum += cell.right;
    return sum;
  }

  TemporaryFolder folder_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<Model> model_;
  // 40 questions side by side, so that a warpgroup adds up most of a context by itself.
  const NeedleOptions needle_ = {.lengths = {context},
                                 .depths = {0, 25, 50, 75, 100},
                                 .samples = 8,
                                 .batch = 40,
                                 .chunk = 8192};
};

TEST_F(NeedleGpuTest, TwoLevelsFindWhatBfloat16Finds) {
  EXPECT_EQ(right("bfloat16", AttentionAccumulation::two_level), 40);
  EXPECT_EQ(right("fp8", AttentionAccumulation::two_level), 40);
  EXPECT_EQ(right("int8:fp8", AttentionAccumulation::two_level), 40);
}

TEST_F(NeedleGpuTest, OneLevelLosesThemOrIsRefused) {
  if (cuda_device_info().architecture == 90) {
    // 3 were right on an H200 (docs/kernels/decode_sm90.md has figures of more questions).
    EXPECT_LE(right("fp8", AttentionAccumulation::single_level), 20);
  }
  for (const char* cache : {"bfloat16", "int8:fp8"}) {
    EXPECT_THROW(right(cache, AttentionAccumulation::single_level), Error) << cache;
  }
}

}  // namespace
}  // namespace octet
