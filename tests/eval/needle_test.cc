// Needles in a haystack, found by a model that was made to find them (tools/make_needle_model.py).
#include "eval/needle.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "engine/key_means.h"
#include "eval/needle_text.h"
#include "files/model_folder.h"
#include "support/temporary_folder.h"
#include "support/test_models.h"
#include "text/tokenizer_json.h"

namespace octet {
namespace {

constexpr std::int64_t context = 8192;

class NeedleTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    const std::string command = fmt::format(
        "python3 -B {}/tools/make_needle_model.py {} --kv-heads 1 --group 2 "
        "--context {} --mean-weight 0.5",
        OCTET_SOURCE_ROOT, folder_->path(), context);
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    const Checkpoint checkpoint = Checkpoint::open(folder_->path());
    tokenizer_ = tokenizer_from_folder(*checkpoint.folder);
    model_ = load_model(checkpoint);
  }
  static void TearDownTestSuite() {
    model_.reset();
    tokenizer_.reset();
    folder_.reset();
  }

  static EngineOptions options(const char* cache, AttentionAccumulation accumulation,
                               const NeedleOptions& needle) {
    EngineOptions made =
        engine_options(TestOptions{.cache = cache},
                       *std::max_element(needle.lengths.begin(), needle.lengths.end()));
    made.accumulation = accumulation;
    made.kv_cache_pages = needle_pages(needle);
    made.limits.max_sequences = needle.batch;
    return made;
  }
  static std::vector<NeedleCell> evaluate(const char* cache, AttentionAccumulation accumulation,
                                          const NeedleOptions& needle) {
    EngineCore core(model_, options(cache, accumulation, needle));
    return evaluate_needle(core, *tokenizer_, needle, {});
  }
  static std::int64_t right(const std::vector<NeedleCell>& cells) {
    std::int64_t sum = 0;
    for (const NeedleCell& cell : cells) sum += cell.right;
    return sum;
  }

  static std::unique_ptr<TemporaryFolder> folder_;
  static std::shared_ptr<const Tokenizer> tokenizer_;
  static std::shared_ptr<Model> model_;
};

std::unique_ptr<TemporaryFolder> NeedleTest::folder_;
std::shared_ptr<const Tokenizer> NeedleTest::tokenizer_;
std::shared_ptr<Model> NeedleTest::model_;

TEST_F(NeedleTest, NeedlesLieAtTheirDepths) {
  const std::vector<double> depths = {100, 0, 50};
  const NeedleText text = make_needle_text(*tokenizer_, {4096, depths, 3, 7});
  ASSERT_EQ(text.questions.size(), 9u);
  EXPECT_EQ(text.haystack.size() % 64, 0u);
  EXPECT_LE(text.haystack.size(), 4096u);
  EXPECT_GE(text.haystack.size(), 4096u - 128);
  std::set<TokenId> numbers;
  for (std::size_t i = 0; i < text.questions.size(); ++i) {
    const NeedleQuestion& asked = text.questions[i];
    EXPECT_EQ(asked.depth, i / 3);
    EXPECT_EQ(tokenizer_->decode(asked.question).substr(0, 17), " The code of box ");
    ASSERT_EQ(asked.answer.size(), 1u);
    numbers.insert(asked.answer[0]);
    numbers.insert(asked.question[asked.question.size() - 2]);
    std::vector<TokenId> sentence = asked.question;
    sentence.push_back(asked.answer[0]);
    const auto place =
        std::search(text.haystack.begin(), text.haystack.end(), sentence.begin(), sentence.end());
    ASSERT_NE(place, text.haystack.end());
    EXPECT_EQ(std::search(place + 1, text.haystack.end(), sentence.begin(), sentence.end()),
              text.haystack.end());
    const double share = static_cast<double>(place - text.haystack.begin()) /
                         static_cast<double>(text.haystack.size());
    EXPECT_NEAR(share, depths[asked.depth] / 100, 0.02);
  }
  // Boxes and codes are all different.
  EXPECT_EQ(numbers.size(), 18u);
}

TEST_F(NeedleTest, TheSameSeedGivesTheSameText) {
  const std::vector<double> depths = {0, 50};
  const auto haystack = [&](unsigned seed) {
    return make_needle_text(*tokenizer_, {2048, depths, 2, seed}).haystack;
  };
  EXPECT_EQ(haystack(1), haystack(1));
  EXPECT_NE(haystack(1), haystack(2));
}

TEST_F(NeedleTest, RefusesTextsTooShortAndNeedlesTooMany) {
  const std::vector<double> depths = {0, 100};
  const auto message = [&](std::int64_t length, std::int64_t samples) -> std::string {
    try {
      make_needle_text(*tokenizer_, {length, depths, samples, 1});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      return error.what();
    }
    return {};
  };
  EXPECT_NE(message(100, 8).find("--lengths 100"), std::string::npos);
  EXPECT_NE(message(1 << 20, 226).find("--samples"), std::string::npos);
  EXPECT_EQ(message(1 << 14, 225), "");
  // What the message asks for is enough.
  const std::string short_text = message(100, 8);
  const std::int64_t least = std::stoll(short_text.substr(short_text.rfind(' ')));
  EXPECT_EQ(message(least, 8), "");
  EXPECT_NE(message(least - 64, 8), "");
}

// Pages that questions share hold what a prompt of one's own would.
TEST_F(NeedleTest, AnAnswerIsThatOfTheWholeTextAsAPrompt) {
  const NeedleOptions needle = {
      .lengths = {600}, .depths = {0, 60}, .samples = 2, .batch = 3, .chunk = 128, .seed = 3};
  const std::vector<NeedleCell> cells =
      evaluate("float32", AttentionAccumulation::two_level, needle);
  ASSERT_EQ(cells.size(), 2u);
  const NeedleText text = make_needle_text(*tokenizer_, {600, needle.depths, 2, 3});
  const auto vocabulary = static_cast<std::size_t>(model_->config().vocabulary_size);
  std::vector<double> probability(2, 0.0);
  for (const NeedleQuestion& asked : text.questions) {
    std::vector<TokenId> prompt = text.haystack;
    prompt.insert(prompt.end(), asked.question.begin(), asked.question.end());
    const std::vector<float> logits = all_logits(model_, prompt, {});
    const std::span<const float> last = std::span(logits).last(vocabulary);
    long double sum = 0;
    for (const float logit : last) sum += std::exp(static_cast<long double>(logit));
    const float wanted = last[static_cast<std::size_t>(asked.answer[0])];
    probability[asked.depth] +=
        static_cast<double>(std::exp(static_cast<long double>(wanted)) / sum) / 2;
  }
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(cells[i].asked, 2);
    EXPECT_NEAR(cells[i].probability, probability[i], 1e-5);
  }
}

TEST_F(NeedleTest, EveryCacheFindsEveryNeedle) {
  const NeedleOptions needle = {.lengths = {1024, context}, .depths = {0, 50, 100}, .samples = 8};
  for (const char* cache : {"float32", "bfloat16", "fp8", "int8:fp8"}) {
    EXPECT_EQ(right(evaluate(cache, AttentionAccumulation::two_level, needle)), 48) << cache;
  }
}

// What Hopper's tensor core loses when it adds up a whole context, the model misses.
TEST_F(NeedleTest, SingleLevelAccumulationLosesNeedlesInLongTexts) {
  const NeedleOptions needle = {.lengths = {1024, context}, .depths = {0, 50}, .samples = 8};
  const std::vector<NeedleCell> cells =
      evaluate("fp8", AttentionAccumulation::single_level, needle);
  const std::span<const NeedleCell> all = cells;
  std::printf("[   needle ] right of 8: %ld %ld at 1024, %ld %ld at %ld\n", all[0].right,
              all[1].right, all[2].right, all[3].right, context);
  EXPECT_GE(all[0].right + all[1].right, 15);
  EXPECT_LE(all[2].right + all[3].right, 8);
}

TEST_F(NeedleTest, SingleLevelAccumulationIsOfFp8Caches) {
  const NeedleOptions needle = {.lengths = {1024}, .depths = {0}};
  for (const char* cache : {"bfloat16", "int8:fp8", "fp8:int8"}) {
    try {
      EngineCore core(model_, options(cache, AttentionAccumulation::single_level, needle));
      ADD_FAILURE() << cache;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported);
      EXPECT_NE(std::string(error.what()).find("--attention-accumulation single"),
                std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace octet
