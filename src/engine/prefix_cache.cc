#include "engine/prefix_cache.h"

#include <algorithm>
#include <utility>

namespace octet {

PrefixCache::PrefixCache(PagePool& pool, std::string model, std::string policy)
    : index_(pool), model_(std::move(model)), policy_(std::move(policy)) {}

void PrefixCache::extend_keys(Sequence& sequence, std::int64_t pages) {
  std::vector<PageKey>& keys = sequence.page_keys;
  while (static_cast<std::int64_t>(keys.size()) < pages) {
    const PageKey previous =
        keys.empty() ? hasher_.seed(model_, policy_, sequence.cache_salt) : keys.back();
    keys.push_back(hasher_.next(
        previous, std::span(sequence.tokens).subspan(keys.size() * page_tokens, page_tokens)));
  }
}

void PrefixCache::adopt(Sequence& sequence) {
  // Whoever wants the logits of all rows has to compute them.
  if (sequence.owes_prompt_logprobs()) return;
  const std::int64_t full_pages = sequence.length() / page_tokens;
  const std::int64_t own_pages = sequence.computed_tokens / page_tokens;
  if (full_pages <= own_pages) return;
  extend_keys(sequence, full_pages);
  const std::span<const PageKey> keys =
      std::span(sequence.page_keys).first(static_cast<std::size_t>(full_pages));
  const std::int64_t last = sequence.length() - 1;
  const std::int64_t pages = sequence.blocks.find_prefix(keys, sequence.computed_tokens, last);
  if (pages <= own_pages) return;
  sequence.blocks.adopt(keys, sequence.computed_tokens, pages, last);

  const std::int64_t before = sequence.computed_tokens;
  sequence.adopted_tokens = pages * page_tokens;
  sequence.computed_tokens = std::min(sequence.adopted_tokens, last);
  sequence.shared_pages = pages;
  if (!sequence.was_preempted) sequence.cached_tokens += sequence.computed_tokens - before;
}

void PrefixCache::share(Sequence& sequence, std::int64_t end) {
  const std::int64_t pages = end / page_tokens;
  if (pages <= sequence.shared_pages) return;
  extend_keys(sequence, pages);
  sequence.blocks.share(std::span(sequence.page_keys).first(static_cast<std::size_t>(pages)),
                        sequence.shared_pages);
  sequence.shared_pages = pages;
}

}  // namespace octet
