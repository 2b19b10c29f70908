#include "kv/block_table.h"

#include <algorithm>

namespace octet {

BlockTable::BlockTable(PagePool& pool) : pool_(&pool), pages_(pool.layout().groups().size()) {}

std::vector<std::int64_t> BlockTable::missing_pages(std::int64_t tokens) const {
  const std::int64_t wanted = (tokens + page_tokens - 1) / page_tokens;
  std::vector<std::int64_t> missing;
  missing.reserve(pages_.size());
  for (const std::vector<PageId>& held : pages_) {
    missing.push_back(std::max<std::int64_t>(wanted - static_cast<std::int64_t>(held.size()), 0));
  }
  return missing;
}

bool BlockTable::grow_to(std::int64_t tokens) {
  const std::vector<std::int64_t> missing = missing_pages(tokens);
  if (!pool_->can_allocate(missing)) return false;
  for (std::size_t group = 0; group < pages_.size(); ++group) {
    for (std::int64_t page = 0; page < missing[group]; ++page) {
      pages_[group].push_back(pool_->allocate(static_cast<int>(group)).value());
    }
  }
  return true;
}

void BlockTable::release_outside_windows(std::int64_t position) {
  for (std::size_t group = 0; group < pages_.size(); ++group) {
    const int window = pool_->layout().groups()[group].geometry.window;
    if (window == 0) continue;
    const std::int64_t first_seen = std::max<std::int64_t>(position - window + 1, 0);
    const std::int64_t pages_past = first_seen / page_tokens;
    for (std::int64_t page =
             std::min<std::int64_t>(pages_past, static_cast<std::int64_t>(pages_[group].size()));
         page-- > 0;) {
      PageId& held = pages_[group][static_cast<std::size_t>(page)];
      if (held == no_page) break;  // all before it went earlier
      pool_->release(static_cast<int>(group), held);
      held = no_page;
    }
  }
}

void BlockTable::clear() {
  for (std::size_t group = 0; group < pages_.size(); ++group) {
    for (const PageId page : pages_[group]) {
      if (page != no_page) pool_->release(static_cast<int>(group), page);
    }
    pages_[group].clear();
  }
}

}  // namespace octet
