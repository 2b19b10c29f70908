// What a step computes, who goes first, and what becomes of a sequence that is preempted.
//
// Four faults that small schedulers of this kind had are tests here and beside: what the prefix
// cache holds counted against a step (PrefixCacheTest.WhatIsFoundTakesNoRowsOfTheStep), a prompt of
// whole pages that are all known (APromptAtAPageEdgeIsReadOnceAndItsLastTokenAgain), a token lost
// when a text is read again (EngineTest.PreemptedSequencesAnswerAsIfAlone), and a preempted
// sequence that workers of tensor parallelism took for one that decodes, because it has an answer,
// so that they got its last token alone (https://github.com/GeeeekExplorer/nano-vllm/pull/103).
// Here a step's rows are handed out as spans of the text from computed_tokens on, and whether a
// sequence decodes follows from what is computed: APreemptedTextGoesOutWholeAgainBeforeItDecodes.
#include "engine/scheduler.h"

#include <numeric>

#include <gtest/gtest.h>

#include "support/context_model.h"
#include "support/test_models.h"

namespace octet {
namespace {

struct Rows {
  RequestId request = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool decodes = false;
  bool operator==(const Rows&) const = default;
};

void PrintTo(const Rows& rows, std::ostream* out) {
  *out << "request " << rows.request << ": " << rows.count << " from " << rows.first
       << (rows.decodes ? ", decodes" : "");
}

class SchedulerTest : public ::testing::Test {
 protected:
  SchedulerTest()
      : tokenizer_(Tokenizer::from_gguf(*GgufFile::open(data_path("models/llama_mixed.gguf")))),
        layout_(ContextModel(tokenizer_->vocabulary_size()).config().kv_geometry(),
                make_kv_policy(KvPolicyOptions{}, 2)) {}

  void start(const SchedulerLimits& limits, std::size_t pages) {
    pool_ = std::make_unique<PagePool>(layout_, pages * PagePool::slab_bytes(layout_));
    scheduler_ = std::make_unique<Scheduler>(limits, *pool_, nullptr);
  }
  void add(RequestId id, std::size_t prompt, std::int64_t max_tokens = 1000) {
    GenerateRequest request;
    request.prompt.resize(prompt);
    std::iota(request.prompt.begin(), request.prompt.end(), 1);
    request.sampling.max_tokens = max_tokens;
    scheduler_->add(
        std::make_unique<Sequence>(id, std::move(request), 0, BlockTable(*pool_), *tokenizer_));
  }
  // What the next step computes, as the engine would: who has all its text read gets a token.
  std::vector<Rows> step() {
    std::vector<Rows> step;
    for (const ScheduledRows& rows : scheduler_->schedule()) {
      Sequence& sequence = *rows.sequence;
      EXPECT_LE(sequence.computed_tokens + rows.tokens, sequence.length());
      EXPECT_GE(static_cast<std::int64_t>(sequence.blocks.pages(0).size()) * page_tokens,
                sequence.computed_tokens + rows.tokens);
      step.push_back({sequence.id, sequence.computed_tokens, rows.tokens, rows.decodes});
      sequence.computed_tokens += rows.tokens;
      if (sequence.pending() == 0) sequence.tokens.push_back(7);
    }
    return step;
  }
  void expect_step(const std::vector<Rows>& expected) { EXPECT_EQ(step(), expected); }

  std::shared_ptr<const Tokenizer> tokenizer_;
  KvLayout layout_;
  std::unique_ptr<PagePool> pool_;  // outlives the sequences
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(SchedulerTest, DecodesGoFirstThenPromptsInTheOrderOfArrival) {
  start({.max_sequences = 3, .max_batched_tokens = 64, .prefill_chunk = 32}, 16);
  add(1, 20);
  add(2, 70);
  add(3, 10);
  add(4, 10);
  expect_step({{1, 0, 20, false}, {2, 0, 32, false}, {3, 0, 10, false}});
  // The fourth waits for a place among three.
  expect_step({{1, 20, 1, true}, {3, 10, 1, true}, {2, 32, 32, false}});
  expect_step({{1, 21, 1, true}, {3, 11, 1, true}, {2, 64, 6, false}});
  scheduler_->remove(3);
  expect_step({{1, 22, 1, true}, {2, 70, 1, true}, {4, 0, 10, false}});
  EXPECT_EQ(scheduler_->waiting(), 0u);
}

TEST_F(SchedulerTest, PromptsBesideDecodesGetTheirBoundAndAllOfAStepWithout) {
  start({.max_sequences = 3,
         .max_batched_tokens = 512,
         .prefill_chunk = 512,
         .prefill_beside_decodes = 128},
        64);
  add(1, 8);
  expect_step({{1, 0, 8, false}});
  add(2, 1000);
  add(3, 500);
  for (std::int64_t first = 0, decoded = 8; first < 896; first += 128, ++decoded) {
    expect_step({{1, decoded, 1, true}, {2, first, 128, false}});
  }
  scheduler_->remove(1);
  // A chunk in the middle of a prompt ends with a page.
  expect_step({{2, 896, 104, false}, {3, 0, 384, false}});
}

TEST_F(SchedulerTest, TheYoungestMakesRoomAndItsRowsOfThisStepAreTakenBack) {
  start({.max_sequences = 4,
         .max_batched_tokens = 64,
         .prefill_chunk = 32,
         .prefill_beside_decodes = 8},
        4);
  add(1, 180);
  expect_step({{1, 0, 32, false}});
  add(2, 60);
  expect_step({{1, 32, 32, false}, {2, 0, 32, false}});
  expect_step({{1, 64, 32, false}, {2, 32, 28, false}});
  for (std::int64_t i = 0; i < 4; ++i)
    expect_step({{2, 60 + i, 1, true}, {1, 96 + 8 * i, 8, false}});
  // The second decodes into the last page, and then the first, which is older, needs one too.
  expect_step({{1, 128, 8, false}});
  EXPECT_EQ(scheduler_->preemptions(), 1);
  EXPECT_EQ(scheduler_->running(), 1u);
  EXPECT_EQ(scheduler_->waiting(), 1u);
  EXPECT_EQ(pool_->held_pages(), 3);
}

// Two sequences over three pages: the first grows into the third, the second stands still at the
// end of its page, and gives it up when the first grows again.
TEST_F(SchedulerTest, APreemptedTextGoesOutWholeAgainBeforeItDecodes) {
  start({.max_sequences = 4, .max_batched_tokens = 64, .prefill_chunk = 24}, 3);
  add(1, 60);
  add(2, 20);
  while (scheduler_->preemptions() == 0) step();
  const Sequence& preempted = *scheduler_->find(2);
  ASSERT_EQ(preempted.length(), 65);
  ASSERT_EQ(preempted.generated(), 45);
  EXPECT_EQ(preempted.computed_tokens, 0);
  EXPECT_TRUE(preempted.blocks.pages(0).empty());
  EXPECT_FALSE(preempted.decodes());
  scheduler_->remove(1);

  // The answer too, in chunks like any prompt; only then does it decode, the token that was due.
  expect_step({{2, 0, 24, false}});
  expect_step({{2, 24, 24, false}});
  expect_step({{2, 48, 17, false}});
  EXPECT_EQ(preempted.generated(), 46);
  expect_step({{2, 65, 1, true}});
  EXPECT_EQ(scheduler_->preemptions(), 1);
}

TEST_F(SchedulerTest, WhatWasPreemptedGoesBeforeWhatWaitsAndIsNotTakenInVain) {
  start({.max_sequences = 4, .max_batched_tokens = 64, .prefill_chunk = 64}, 3);
  add(1, 60);
  add(2, 60);
  for (int i = 0; i < 8; ++i) step();
  add(3, 30);
  while (scheduler_->preemptions() == 0) step();
  EXPECT_EQ(scheduler_->waiting(), 2u);
  for (std::int64_t i = 0; i < 20; ++i) expect_step({{1, 129 + i, 1, true}});
  scheduler_->remove(1);
  expect_step({{2, 0, 64, false}});
  expect_step({{2, 64, 1, true}, {3, 0, 30, false}});
  EXPECT_EQ(scheduler_->preemptions(), 1);
}

}  // namespace
}  // namespace octet
