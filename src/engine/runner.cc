#include "engine/runner.h"

#include <algorithm>

#include "core/error.h"

namespace octet {

void Runner::add_rows(const RunnerRows& request, SequenceRows* sequence) {
  const std::int64_t vocabulary = model_->config().vocabulary_size;
  const std::size_t groups = pool_->layout().groups().size();
  sequence->first_row = static_cast<std::int32_t>(tokens_.size());
  sequence->rows = static_cast<std::int32_t>(request.tokens.size());
  sequence->first_position = static_cast<std::int32_t>(request.first_position);
  sequence->rows_in_cache = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(request.first_written - request.first_position, 0, sequence->rows));
  sequence->pages.resize(groups);
  const std::int64_t end = request.first_position + sequence->rows;
  for (std::size_t group = 0; group < groups; ++group) {
    const std::span<const PageId> pages = request.blocks->pages(static_cast<int>(group));
    if (static_cast<std::int64_t>(pages.size()) * page_tokens < end) {
      throw_error(ErrorKind::internal, "a sequence's {} pages do not hold its {} tokens",
                  pages.size(), end);
    }
    sequence->pages[group] = pages.data();
  }
  for (const TokenId token : request.tokens) {
    if (token < 0 || token >= vocabulary) {
      throw_bad_input("token id {} is outside the model's vocabulary of {}", token, vocabulary);
    }
    positions_.push_back(sequence->first_position + static_cast<std::int32_t>(tokens_.size()) -
                         sequence->first_row);
    tokens_.push_back(token);
    if (request.logits == WantedLogits::all) {
      logit_rows_.push_back(static_cast<std::int32_t>(tokens_.size()) - 1);
    }
  }
  if (request.logits == WantedLogits::last && sequence->rows > 0) {
    logit_rows_.push_back(static_cast<std::int32_t>(tokens_.size()) - 1);
  }
}

ForwardBatch Runner::lay_out(std::span<const RunnerRows> rows) {
  tokens_.clear();
  positions_.clear();
  logit_rows_.clear();
  sequences_.resize(rows.size());
  ForwardBatch batch;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    add_rows(rows[i], &sequences_[i]);
    const bool goes_on = rows[i].decodes && sequences_[i].rows == 1;
    if (goes_on && batch.decoding_sequences == static_cast<std::int64_t>(i)) {
      ++batch.decoding_sequences;
    }
  }
  batch.tokens = tokens_;
  batch.positions = positions_;
  batch.sequences = sequences_;
  batch.logit_rows = logit_rows_;
  batch.pool = pool_;
  batch.counters = &counters_;
  return batch;
}

std::span<const float> Runner::run(std::span<const RunnerRows> rows) {
  const ForwardBatch batch = lay_out(rows);
  const std::size_t floats =
      logit_rows_.size() * static_cast<std::size_t>(model_->config().vocabulary_size);
  if (logits_.size() < floats) logits_.resize(floats);
  model_->forward(*context_, batch, logits_.data());
  return {logits_.data(), floats};
}

std::span<const TokenId> Runner::run_and_draw(std::span<const RunnerRows> rows,
                                              std::span<const DrawRow> draws, std::int64_t usable) {
  const ForwardBatch batch = lay_out(rows);
  if (draws.size() != logit_rows_.size()) {
    throw_error(ErrorKind::internal, "{} rows want logits and {} draws were given",
                logit_rows_.size(), draws.size());
  }
  drawn_.resize(draws.size());
  model_->forward_and_draw(*context_, batch, draws, usable, drawn_);
  return drawn_;
}

}  // namespace octet
