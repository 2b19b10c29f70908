// Decides what the next step computes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/prefix_cache.h"
#include "engine/sequence.h"

namespace octet {

struct SchedulerLimits {
  std::int64_t max_sequences = 8;         // running at once
  std::int64_t max_batched_tokens = 512;  // rows of a step
  std::int64_t prefill_chunk = 512;       // rows of one sequence in a step; 0: its whole prompt
  // Rows of prompts in a step in which others decode, whose next tokens wait for them; 0: as many
  // as fit.
  std::int64_t prefill_beside_decodes = 0;

  // The most rows that one sequence gets in a step.
  std::int64_t largest_chunk() const;
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
// is left of the step's rows, oldest request first; what the prefix cache knows is taken in place
// of being computed. Where a row needs a page and none can be had, the youngest running sequence
// gives its pages back and waits at the head of the queue; it is computed again later, answer
// included. The engine refuses requests that the whole arena could not hold, so the oldest sequence
// can always go on.
class Scheduler {
 public:
  // `pool` and `cache` outlive the scheduler; without a cache nothing is shared.
  Scheduler(const SchedulerLimits& limits, PagePool& pool, PrefixCache* cache);

  void add(std::unique_ptr<Sequence> sequence);
  // Valid until the next call.
  const std::vector<ScheduledRows>& schedule();

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
  std::int64_t chunk_of(const Sequence& sequence) const;
  void schedule_decodes();
  void schedule_prefills();
  bool schedule_rows(Sequence& sequence);
  bool make_room(const Sequence& sequence, std::int64_t tokens);
  void preempt_youngest();
  void admit();
  bool can_admit(Sequence& sequence);
  bool has_room(const Sequence& sequence);
  void add_missing_pages(const Sequence& sequence);
  std::uint64_t cache_changes() const;

  SchedulerLimits limits_;
  PagePool* pool_;
  PrefixCache* cache_;
  // Both in the order of arrival, and what runs came before what waits: a preempted sequence is the
  // youngest of those that run.
  std::vector<std::unique_ptr<Sequence>> running_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::int64_t preemptions_ = 0;
  // The request that found no room, and the state of the cache then: not to be tried in vain.
  RequestId refused_ = 0;
  std::uint64_t refused_at_ = 0;
  // Of one step.
  std::vector<ScheduledRows> scheduled_;
  std::int64_t rows_left_ = 0;
  std::int64_t logit_rows_left_ = 0;
  std::vector<std::int64_t> missing_;
};

}  // namespace octet
