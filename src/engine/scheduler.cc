#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace octet {

std::int64_t Scheduler::chunk_of(const Sequence& sequence, std::int64_t rows_left) const {
  const std::int64_t chunk = limits_.prefill_chunk > 0 ? limits_.prefill_chunk : sequence.pending();
  const std::int64_t rows = std::min({sequence.pending(), chunk, rows_left});
  return sequence.owes_prompt_logprobs() ? std::min(rows, logit_rows_left_) : rows;
}

void Scheduler::push_rows(Sequence& sequence, std::int64_t tokens,
                          std::vector<ScheduledRows>* scheduled) {
  if (sequence.owes_prompt_logprobs()) logit_rows_left_ -= tokens;
  scheduled->push_back({&sequence, tokens, sequence.decodes()});
}

// Preempts sequences younger than `sequence`, youngest first, until it can grow to `tokens`. Rows
// that a preempted sequence was already given in this step are taken back.
bool Scheduler::make_room(const Sequence& sequence, std::int64_t tokens, std::int64_t* undone_rows,
                          std::vector<ScheduledRows>* scheduled) {
  while (!pool_->can_allocate(sequence.blocks.missing_pages(tokens))) {
    if (running_.back().get() == &sequence) return false;
    std::unique_ptr<Sequence> youngest = std::move(running_.back());
    running_.pop_back();
    std::erase_if(*scheduled, [&](const ScheduledRows& rows) {
      if (rows.sequence != youngest.get()) return false;
      *undone_rows += rows.tokens;
      return true;
    });
    youngest->blocks.clear();
    youngest->computed_tokens = 0;
    ++preemptions_;
    waiting_.push_front(std::move(youngest));
  }
  return true;
}

bool Scheduler::schedule_sequence(Sequence& sequence, std::int64_t* rows_left,
                                  std::vector<ScheduledRows>* scheduled) {
  const std::int64_t tokens = chunk_of(sequence, *rows_left);
  if (tokens == 0) return false;
  const std::int64_t end = sequence.computed_tokens + tokens;
  if (!make_room(sequence, end, rows_left, scheduled)) return false;
  sequence.blocks.grow_to(end);
  push_rows(sequence, tokens, scheduled);
  *rows_left -= tokens;
  return true;
}

void Scheduler::admit(std::int64_t* rows_left, std::vector<ScheduledRows>* scheduled) {
  while (!waiting_.empty() && *rows_left > 0 &&
         static_cast<std::int64_t>(running_.size()) < limits_.max_sequences) {
    Sequence& next = *waiting_.front();
    // Only one whose whole text so far has room, and one page more: to start another would be to
    // preempt it soon after.
    const std::vector<std::int64_t> pages = next.blocks.missing_pages(next.length() + 1);
    if (!pool_->can_allocate(pages)) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    schedule_sequence(*running_.back(), rows_left, scheduled);
  }
}

std::vector<ScheduledRows> Scheduler::schedule() {
  std::vector<ScheduledRows> scheduled;
  std::int64_t rows_left = limits_.max_batched_tokens;
  logit_rows_left_ = max_prompt_logit_rows;
  const std::int64_t preemptions_before = preemptions_;
  // Indices, since make_room shortens running_ at its end.
  for (const bool decodes : {true, false}) {
    for (std::size_t i = 0; i < running_.size(); ++i) {
      Sequence& sequence = *running_[i];
      if (sequence.decodes() == decodes) schedule_sequence(sequence, &rows_left, &scheduled);
    }
  }
  // What was just preempted would only come back to be preempted again.
  if (preemptions_ == preemptions_before) admit(&rows_left, &scheduled);
  if (scheduled.empty() && !idle()) {
    throw_error(ErrorKind::internal,
                "no sequence can go on: {} running, {} waiting, {} cache pages in use",
                running_.size(), waiting_.size(), pool_->used_pages());
  }
  return scheduled;
}

std::unique_ptr<Sequence> Scheduler::remove_oldest() {
  if (!running_.empty()) return remove(running_.front()->id);
  if (!waiting_.empty()) return remove(waiting_.front()->id);
  return nullptr;
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

}  // namespace octet
