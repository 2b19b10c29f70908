#include "eval/needle.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "engine/sampler.h"
#include "eval/needle_text.h"
#include "kv/block_table.h"
#include "kv/page_key.h"

namespace octet {

namespace {

// Of a question and its answer: a few words and a number, a byte a token at worst.
constexpr std::int64_t most_question_tokens = 64;

double probability_of(std::span<const float> logits, TokenId token) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - highest);
  return std::exp(static_cast<double>(logits[static_cast<std::size_t>(token)]) - highest) / sum;
}

// A text in the cache, whose pages its questions share.
class Haystack {
 public:
  Haystack(EngineCore& core, std::span<const TokenId> tokens)
      : core_(&core), index_(core.pool()), blocks_(core.pool(), &index_), tokens_(tokens) {
    PageHasher hasher;
    PageKey key = hasher.seed("needle", "", "");
    for (std::size_t page = 0; page < tokens.size() / page_tokens; ++page) {
      key = hasher.next(key, tokens.subspan(page * page_tokens, page_tokens));
      keys_.push_back(key);
    }
  }

  void read(std::int64_t first, std::int64_t count) {
    RunnerRows rows;
    rows.blocks = &blocks_;
    rows.tokens = tokens_.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    rows.first_position = first;
    rows.logits = WantedLogits::none;
    grow(&blocks_, first + count);
    core_->runner().run({&rows, 1});
    const std::int64_t pages = (first + count) / page_tokens;
    blocks_.share(std::span(keys_).first(static_cast<std::size_t>(pages)), first / page_tokens);
    blocks_.release_outside_windows(first + count);
  }

  // A sequence that has read it, with room for more tokens.
  BlockTable fork(std::int64_t more) {
    BlockTable table(core_->pool(), &index_);
    table.adopt(keys_, 0, static_cast<std::int64_t>(keys_.size()), size());
    grow(&table, size() + more);
    return table;
  }

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }

 private:
  static void grow(BlockTable* table, std::int64_t tokens) {
    if (table->grow_to(tokens)) return;
    throw_error(ErrorKind::out_of_memory, "the KV cache has no room for {} tokens", tokens);
  }

  EngineCore* core_;
  PrefixIndex index_;
  BlockTable blocks_;
  std::span<const TokenId> tokens_;
  std::vector<PageKey> keys_;
};

// A question that is being answered.
struct Asked {
  const NeedleQuestion* needle;
  BlockTable blocks;
  bool right = true;
  double probability = 1;

  std::span<const TokenId> answer() const { return needle->answer; }
};

// The step that says the answers' tokens `index`, given right ones before it.
void answer_token(EngineCore& core, std::int64_t start, std::size_t index, std::span<Asked> asked) {
  std::vector<RunnerRows> rows;
  std::vector<Asked*> of_row;
  for (Asked& one : asked) {
    if (index >= one.answer().size()) continue;
    RunnerRows row;
    row.blocks = &one.blocks;
    row.tokens =
        index == 0 ? std::span(one.needle->question).last(1) : one.answer().subspan(index - 1, 1);
    row.first_position = start + static_cast<std::int64_t>(one.needle->question.size() + index) - 1;
    row.decodes = true;
    rows.push_back(row);
    of_row.push_back(&one);
  }
  const std::span<const float> logits = core.runner().run(rows);
  const auto vocabulary = static_cast<std::size_t>(core.model().config().vocabulary_size);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::span<const float> of_token = logits.subspan(i * vocabulary, vocabulary);
    const TokenId wanted = of_row[i]->answer()[index];
    of_row[i]->right = of_row[i]->right && most_likely(of_token) == wanted;
    of_row[i]->probability *= probability_of(of_token, wanted);
  }
}

std::vector<Asked> ask(EngineCore& core, Haystack& haystack,
                       std::span<const NeedleQuestion> questions) {
  std::vector<Asked> asked;
  std::vector<RunnerRows> rows;
  std::size_t longest = 0;
  for (const NeedleQuestion& needle : questions) {
    const std::size_t tokens = needle.question.size() + needle.answer.size();
    asked.push_back({&needle, haystack.fork(static_cast<std::int64_t>(tokens))});
    longest = std::max(longest, needle.answer.size());
  }
  for (const Asked& one : asked) {
    if (one.needle->question.size() == 1) continue;
    RunnerRows row;
    row.blocks = &one.blocks;
    row.tokens = std::span(one.needle->question).first(one.needle->question.size() - 1);
    row.first_position = haystack.size();
    row.logits = WantedLogits::none;
    rows.push_back(row);
  }
  if (!rows.empty()) core.runner().run(rows);
  for (std::size_t index = 0; index < longest; ++index) {
    answer_token(core, haystack.size(), index, asked);
  }
  return asked;
}

}  // namespace

std::int64_t needle_pages(const NeedleOptions& options) {
  const std::int64_t longest = *std::max_element(options.lengths.begin(), options.lengths.end());
  return longest / page_tokens + 1 + options.batch * (most_question_tokens / page_tokens + 1);
}

std::vector<NeedleCell> evaluate_needle(EngineCore& core, const Tokenizer& tokenizer,
                                        const NeedleOptions& options,
                                        const std::function<void(std::int64_t)>& progress) {
  std::vector<NeedleCell> cells;
  std::int64_t done = 0;
  for (const std::int64_t length : options.lengths) {
    const NeedleText text =
        make_needle_text(tokenizer, {length, options.depths, options.samples, options.seed});
    const std::size_t first_cell = cells.size();
    for (const double depth : options.depths) cells.push_back({.length = length, .depth = depth});
    Haystack haystack(core, text.haystack);
    for (std::int64_t first = 0; first < haystack.size(); first += options.chunk) {
      const std::int64_t count = std::min(options.chunk, haystack.size() - first);
      haystack.read(first, count);
      if (progress) progress(done += count);
    }
    const std::span<const NeedleQuestion> questions = text.questions;
    const auto batch = static_cast<std::size_t>(options.batch);
    for (std::size_t first = 0; first < questions.size(); first += batch) {
      const std::size_t count = std::min(batch, questions.size() - first);
      for (const Asked& one : ask(core, haystack, questions.subspan(first, count))) {
        NeedleCell& cell = cells[first_cell + one.needle->depth];
        ++cell.asked;
        cell.right += one.right ? 1 : 0;
        cell.probability += one.probability / static_cast<double>(options.samples);
      }
    }
  }
  return cells;
}

}  // namespace octet
