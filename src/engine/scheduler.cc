#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace octet {

std::int64_t SchedulerLimits::largest_chunk() const {
  return prefill_chunk > 0 ? std::min(prefill_chunk, max_batched_tokens) : max_batched_tokens;
}

Scheduler::Scheduler(const SchedulerLimits& limits, PagePool& pool, PrefixCache* cache)
    : limits_(limits), pool_(&pool), cache_(cache), missing_(pool.layout().groups().size()) {}

void Scheduler::add(std::unique_ptr<Sequence> sequence) { waiting_.push_back(std::move(sequence)); }

const std::vector<ScheduledRows>& Scheduler::schedule() {
  scheduled_.clear();
  rows_left_ = limits_.max_batched_tokens;
  logit_rows_left_ = max_prompt_logit_rows;
  const std::int64_t preemptions_before = preemptions_;

  schedule_decodes();
  if (!scheduled_.empty() && limits_.prefill_beside_decodes > 0) {
    rows_left_ = std::min(rows_left_, limits_.prefill_beside_decodes);
  }
  schedule_prefills();
  // Pages of several groups can lie so that even the last sequence finds no room among its own:
  // given back and taken again they lie close.
  if (scheduled_.empty() && !running_.empty()) {
    while (!running_.empty()) preempt_youngest();
    admit();
  } else if (preemptions_ == preemptions_before) {
    // What was just preempted would only come back to be preempted again.
    admit();
  }
  if (scheduled_.empty() && !idle()) {
    throw_error(ErrorKind::internal,
                "no sequence can go on: {} running, {} waiting, {} cache pages in use",
                running_.size(), waiting_.size(), pool_->held_pages());
  }
  return scheduled_;
}

// Indices in both loops, since make_room shortens running_ at its end.
void Scheduler::schedule_decodes() {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->decodes()) schedule_rows(*running_[i]);
  }
}

void Scheduler::schedule_prefills() {
  for (std::size_t i = 0; i < running_.size() && rows_left_ > 0; ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.decodes()) continue;
    if (cache_ != nullptr) cache_->adopt(sequence);
    // From here on only younger sequences are preempted: the pages will be filled in this step.
    if (schedule_rows(sequence) && cache_ != nullptr) {
      cache_->share(sequence, sequence.computed_tokens + scheduled_.back().tokens);
    }
  }
  // Only now is it certain that the decodes were not preempted.
  if (cache_ == nullptr) return;
  for (const ScheduledRows& rows : scheduled_) {
    if (rows.decodes) cache_->share(*rows.sequence, rows.sequence->length());
  }
}

std::int64_t Scheduler::chunk_of(const Sequence& sequence) const {
  const std::int64_t rows =
      std::min({sequence.pending(), limits_.largest_chunk(), rows_left_,
                sequence.owes_prompt_logprobs() ? logit_rows_left_ : rows_left_});
  // A large chunk in the middle of a prompt ends with a page, so that another sequence can take all
  // of it.
  const std::int64_t past_page = (sequence.computed_tokens + rows) % page_tokens;
  const bool whole_pages = rows < sequence.pending() && rows >= 2 * page_tokens;
  return whole_pages ? rows - past_page : rows;
}

bool Scheduler::schedule_rows(Sequence& sequence) {
  const std::int64_t rows = chunk_of(sequence);
  if (rows == 0) return false;
  const std::int64_t end = sequence.computed_tokens + rows;
  if (!make_room(sequence, end)) return false;
  sequence.blocks.grow_to(end);
  if (sequence.owes_prompt_logprobs()) logit_rows_left_ -= rows;
  scheduled_.push_back({&sequence, rows, sequence.decodes()});
  rows_left_ -= rows;
  return true;
}

// Preempts sequences younger than `sequence`, youngest first, until it can grow to `tokens`.
bool Scheduler::make_room(const Sequence& sequence, std::int64_t tokens) {
  sequence.blocks.missing_pages(tokens, &missing_);
  while (!pool_->could_allocate(missing_)) {
    if (running_.back().get() == &sequence) return false;
    preempt_youngest();
  }
  return true;
}

// Rows that it was already given in this step are taken back.
void Scheduler::preempt_youngest() {
  std::unique_ptr<Sequence> youngest = std::move(running_.back());
  running_.pop_back();
  std::erase_if(scheduled_, [&](const ScheduledRows& rows) {
    if (rows.sequence != youngest.get()) return false;
    rows_left_ += rows.tokens;
    return true;
  });
  youngest->was_preempted = true;
  youngest->start_over();
  ++preemptions_;
  waiting_.push_front(std::move(youngest));
}

void Scheduler::admit() {
  while (!waiting_.empty() && rows_left_ > 0 &&
         static_cast<std::int64_t>(running_.size()) < limits_.max_sequences) {
    if (!can_admit(*waiting_.front())) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    Sequence& sequence = *running_.back();
    if (schedule_rows(sequence) && cache_ != nullptr) {
      cache_->share(sequence, sequence.computed_tokens + scheduled_.back().tokens);
    }
  }
}

// Only one whose whole text so far has room, and one token more, beside what runs: to start another
// would be to preempt it soon after. Pages that it finds in the cache are taken first: while they
// are idle they count as room.
bool Scheduler::can_admit(Sequence& sequence) {
  if (refused_ == sequence.id && refused_at_ == cache_changes()) return false;
  if (cache_ != nullptr) cache_->adopt(sequence);
  if (has_room(sequence)) return true;
  sequence.start_over();
  // Alone it has room, unless in the way of the pages that it found.
  if (running_.empty() && has_room(sequence)) return true;
  refused_ = sequence.id;
  refused_at_ = cache_changes();
  return false;
}

std::uint64_t Scheduler::cache_changes() const {
  return pool_->releases() + (cache_ == nullptr ? 0 : cache_->index().insertions());
}

bool Scheduler::has_room(const Sequence& sequence) {
  std::fill(missing_.begin(), missing_.end(), 0);
  for (const auto& other : running_) add_missing_pages(*other);
  add_missing_pages(sequence);
  return pool_->could_allocate(missing_);
}

void Scheduler::add_missing_pages(const Sequence& sequence) {
  // The last token of an answer is never written.
  const std::int64_t most =
      sequence.prompt_tokens + std::max<std::int64_t>(sequence.sampling.max_tokens, 1) - 1;
  sequence.blocks.add_missing_pages(sequence.computed_tokens, std::min(sequence.length() + 1, most),
                                    limits_.largest_chunk(), &missing_);
}

Sequence* Scheduler::find(RequestId id) const {
  for (const auto& sequence : running_) {
    if (sequence->id == id) return sequence.get();
  }
  for (const auto& sequence : waiting_) {
    if (sequence->id == id) return sequence.get();
  }
  return nullptr;
}

std::unique_ptr<Sequence> Scheduler::remove(RequestId id) {
  const auto take = [id](auto& list) -> std::unique_ptr<Sequence> {
    const auto found =
        std::find_if(list.begin(), list.end(), [id](const auto& s) { return s->id == id; });
    if (found == list.end()) return nullptr;
    std::unique_ptr<Sequence> sequence = std::move(*found);
    list.erase(found);
    return sequence;
  };
  if (std::unique_ptr<Sequence> sequence = take(running_)) return sequence;
  return take(waiting_);
}

std::unique_ptr<Sequence> Scheduler::remove_oldest() {
  if (!running_.empty()) return remove(running_.front()->id);
  if (!waiting_.empty()) return remove(waiting_.front()->id);
  return nullptr;
}

}  // namespace octet
