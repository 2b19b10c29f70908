// The pages that hold one sequence's keys and values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/page_pool.h"
#include "kv/prefix_index.h"

namespace octet {

// Counted references to pages, per group, in the order of the sequence's tokens: entry i of a group
// holds tokens [64 i, 64 i + 64), or is no_page where a windowed group needs that page no more.
class BlockTable {
 public:
  // With an index, which must outlive the table, full pages can be shared with other tables.
  explicit BlockTable(PagePool& pool, PrefixIndex* index = nullptr);
  ~BlockTable() { clear(); }
  BlockTable(BlockTable&&) noexcept = default;
  BlockTable& operator=(BlockTable&&) = delete;
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  // Pages that each group still lacks to hold tokens [0, tokens).
  std::vector<std::int64_t> missing_pages(std::int64_t tokens) const;
  void missing_pages(std::int64_t tokens, std::vector<std::int64_t>* missing) const;
  // The same for a sequence that stands at `position` and is read on in chunks: windowed groups
  // never hold more than a chunk and its window. Adds to `missing`.
  void add_missing_pages(std::int64_t position, std::int64_t tokens, std::int64_t chunk,
                         std::vector<std::int64_t>* missing) const;
  // Takes what missing_pages() says, all or none, and gives up idle pages of the index for them.
  // False: the pool has no room and nothing changed.
  bool grow_to(std::int64_t tokens);
  // Gives back the pages of windowed groups that no query at `position` or later can see.
  void release_outside_windows(std::int64_t position);
  // Gives all pages back. The index keeps the full ones that it knows.
  void clear();

  // With keys of the sequence's first pages, and pages for tokens [0, tokens) in the table: how
  // many pages the table would hold after adopt(), where the next query stands at the end of them,
  // or at `last_position` if that is less. At least tokens / 64, which means that nothing is found.
  std::int64_t find_prefix(std::span<const PageKey> keys, std::int64_t tokens,
                           std::int64_t last_position) const;
  // Takes references to the pages that find_prefix() found, up to page `pages`; what the table had
  // from page tokens / 64 on, a page not yet full, is given back.
  void adopt(std::span<const PageKey> keys, std::int64_t tokens, std::int64_t pages,
             std::int64_t last_position);
  // Makes the table's pages [first, keys.size()) known, which must be full when they are next read.
  void share(std::span<const PageKey> keys, std::int64_t first);
  // What the table's pages hold is not to be trusted: nothing finds them any more.
  void forget();

  std::span<const PageId> pages(int group) const { return pages_[static_cast<std::size_t>(group)]; }

 private:
  int window_of(std::size_t group) const { return pool_->layout().groups()[group].geometry.window; }
  void release(std::size_t group, PageId page);

  PagePool* pool_;
  PrefixIndex* index_;
  std::vector<std::vector<PageId>> pages_;
  std::vector<std::int64_t> missing_;
};

// The first page that a query at `position` sees through `window` (0: all).
constexpr std::int64_t first_page_seen(int window, std::int64_t position) {
  const std::int64_t first = position - window + 1;
  return window == 0 || first < 0 ? 0 : first / page_tokens;
}

// The most pages that a group needs at once to read tokens [position, tokens) in chunks of at most
// `chunk`, earlier ones that these see included.
constexpr std::int64_t most_pages_at_once(int window, std::int64_t position, std::int64_t tokens,
                                          std::int64_t chunk) {
  const std::int64_t all =
      (tokens + page_tokens - 1) / page_tokens - first_page_seen(window, position);
  if (window == 0) return all;
  // n tokens that begin anywhere in a page lie in at most (n - 2) / 64 + 2 pages.
  const std::int64_t span = window - 1 + chunk;
  return std::min(all, (span + page_tokens - 2) / page_tokens + 1);
}

}  // namespace octet
