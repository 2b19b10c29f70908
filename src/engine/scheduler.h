// Decides what the next step computes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/sequence.h"

namespace octet {

struct SchedulerLimits {
  std::int64_t max_sequences = 8;         // running at once
  std::int64_t max_batched_tokens = 512;  // rows of a step
  std::int64_t prefill_chunk = 512;       // rows of one sequence in a step; 0: its whole prompt
};

// Rows of a step that may want the logits of every one of them, for a prompt's log-probabilities:
// 64 rows of 150,000 logits are 38 MB.
inline constexpr std::int64_t max_prompt_logit_rows = 64;

struct ScheduledRows {
  Sequence* sequence = nullptr;
  std::int64_t tokens = 0;  // to compute now, from sequence->computed_tokens on
  bool decodes = false;     // its one row follows an answer's token
};

// Continuous batching: sequences that decode go first, one row each, then prefill chunks fill what
// is left of the step's rows, oldest request first. Where a row needs a page and none is left, the
// youngest running sequence gives its pages back and waits at the head of the queue; it is computed
// again later, answer included. The engine refuses requests that the whole arena could not hold, so
// the oldest sequence can always go on.
class Scheduler {
 public:
  Scheduler(SchedulerLimits limits, PagePool& pool) : limits_(limits), pool_(&pool) {}

  void add(std::unique_ptr<Sequence> sequence) { waiting_.push_back(std::move(sequence)); }
  std::vector<ScheduledRows> schedule();

  // Takes a sequence out, its pages with it.
  std::unique_ptr<Sequence> remove(RequestId id);
  // The one that came first; nothing where there is none.
  std::unique_ptr<Sequence> remove_oldest();
  Sequence* find(RequestId id) const;

  bool idle() const { return waiting_.empty() && running_.empty(); }
  std::size_t waiting() const { return waiting_.size(); }
  std::size_t running() const { return running_.size(); }
  std::int64_t preemptions() const { return preemptions_; }
  const SchedulerLimits& limits() const { return limits_; }

 private:
  std::int64_t chunk_of(const Sequence& sequence, std::int64_t rows_left) const;
  void push_rows(Sequence& sequence, std::int64_t tokens, std::vector<ScheduledRows>* scheduled);
  bool make_room(const Sequence& sequence, std::int64_t tokens, std::int64_t* undone_rows,
                 std::vector<ScheduledRows>* scheduled);
  bool schedule_sequence(Sequence& sequence, std::int64_t* rows_left,
                         std::vector<ScheduledRows>* scheduled);
  void admit(std::int64_t* rows_left, std::vector<ScheduledRows>* scheduled);

  SchedulerLimits limits_;
  PagePool* pool_;
  std::deque<std::unique_ptr<Sequence>> waiting_;   // oldest first
  std::vector<std::unique_ptr<Sequence>> running_;  // oldest first
  std::int64_t preemptions_ = 0;
  std::int64_t logit_rows_left_ = 0;  // of this step, for prompts' log-probabilities
};

}  // namespace octet
