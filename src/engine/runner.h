// Lays a step's rows out for the model and runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kv/block_table.h"
#include "models/model.h"
#include "text/tokenizer.h"

namespace octet {

enum class WantedLogits { none, last, all };

// Tokens of one sequence to compute: they take positions first_position, first_position + 1, ...
// and `blocks` already holds pages for them.
struct RunnerRows {
  const BlockTable* blocks = nullptr;
  std::span<const TokenId> tokens;
  std::int64_t first_position = 0;
  // Positions before this one are in the cache: such rows are computed, but not written.
  std::int64_t first_written = 0;
  WantedLogits logits = WantedLogits::last;
  // The one row follows a token of an answer, and earlier steps have filled all pages before it.
  bool decodes = false;
};

class Runner {
 public:
  // `context` and `pool` outlive the runner.
  Runner(std::shared_ptr<Model> model, const OpContext& context, const PagePool& pool)
      : model_(std::move(model)),
        context_(&context),
        pool_(&pool),
        counters_(model_->config().layers) {}

  // Logits [wanted rows, vocabulary] in the order of `rows`; valid until the next run.
  std::span<const float> run(std::span<const RunnerRows> rows);

  // For models that draw: a token for each wanted row, or -1 (Model::forward_and_draw); valid until
  // the next run.
  std::span<const TokenId> run_and_draw(std::span<const RunnerRows> rows,
                                        std::span<const DrawRow> draws, std::int64_t usable);
  // Logits [vocabulary] of wanted row `row` of the last run_and_draw().
  void read_logits(std::int64_t row, std::span<float> logits) { model_->read_logits(row, logits); }

  const Model& model() const { return *model_; }
  const KvWriteCounters& counters() const { return counters_; }

 private:
  ForwardBatch lay_out(std::span<const RunnerRows> rows);
  void add_rows(const RunnerRows& request, SequenceRows* sequence);

  std::shared_ptr<Model> model_;
  const OpContext* context_;
  const PagePool* pool_;
  KvWriteCounters counters_;
  // Of one step; kept so that a step allocates nothing.
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> logit_rows_;
  std::vector<SequenceRows> sequences_;
  std::vector<float> logits_;
  std::vector<TokenId> drawn_;
};

}  // namespace octet
