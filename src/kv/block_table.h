// The pages that hold one sequence's keys and values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/page_pool.h"

namespace octet {

// Counted references to pages, per group, in the order of the sequence's tokens: entry i of a group
// holds tokens [64 i, 64 i + 64), or is no_page where a windowed group gave the page back.
class BlockTable {
 public:
  explicit BlockTable(PagePool& pool);
  ~BlockTable() { clear(); }
  BlockTable(BlockTable&&) noexcept = default;
  BlockTable& operator=(BlockTable&&) = delete;
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  // Pages that each group still lacks to hold tokens [0, tokens).
  std::vector<std::int64_t> missing_pages(std::int64_t tokens) const;
  // Takes them, all or none. False: the pool has no room and nothing changed.
  bool grow_to(std::int64_t tokens);
  // Gives back the pages of windowed groups that no query at `position` or later can see.
  void release_outside_windows(std::int64_t position);
  void clear();

  std::span<const PageId> pages(int group) const { return pages_[static_cast<std::size_t>(group)]; }

 private:
  PagePool* pool_;
  std::vector<std::vector<PageId>> pages_;
};

}  // namespace octet
