#include "kv/block_table.h"

#include <algorithm>

namespace octet {

BlockTable::BlockTable(PagePool& pool, PrefixIndex* index)
    : pool_(&pool), index_(index), pages_(pool.layout().groups().size()) {}

void BlockTable::missing_pages(std::int64_t tokens, std::vector<std::int64_t>* missing) const {
  const std::int64_t wanted = (tokens + page_tokens - 1) / page_tokens;
  missing->clear();
  for (const std::vector<PageId>& held : pages_) {
    missing->push_back(std::max<std::int64_t>(wanted - static_cast<std::int64_t>(held.size()), 0));
  }
}

std::vector<std::int64_t> BlockTable::missing_pages(std::int64_t tokens) const {
  std::vector<std::int64_t> missing;
  missing_pages(tokens, &missing);
  return missing;
}

void BlockTable::add_missing_pages(std::int64_t position, std::int64_t tokens, std::int64_t chunk,
                                   std::vector<std::int64_t>* missing) const {
  for (std::size_t group = 0; group < pages_.size(); ++group) {
    const std::int64_t held = static_cast<std::int64_t>(pages_[group].size()) -
                              first_page_seen(window_of(group), position);
    (*missing)[group] += std::max<std::int64_t>(
        most_pages_at_once(window_of(group), position, tokens, chunk) - held, 0);
  }
}

bool BlockTable::grow_to(std::int64_t tokens) {
  missing_pages(tokens, &missing_);
  if (!(index_ != nullptr ? index_->make_room(missing_) : pool_->can_allocate(missing_))) {
    return false;
  }
  for (std::size_t group = 0; group < pages_.size(); ++group) {
    for (std::int64_t page = 0; page < missing_[group]; ++page) {
      pages_[group].push_back(pool_->allocate(static_cast<int>(group)).value());
    }
  }
  return true;
}

void BlockTable::release(std::size_t group, PageId page) {
  if (index_ != nullptr) {
    index_->release(static_cast<int>(group), page);
  } else {
    pool_->release(static_cast<int>(group), page);
  }
}

void BlockTable::release_outside_windows(std::int64_t position) {
  for (std::size_t group = 0; group < pages_.size(); ++group) {
    if (window_of(group) == 0) continue;
    for (std::int64_t page = std::min(first_page_seen(window_of(group), position),
                                      static_cast<std::int64_t>(pages_[group].size()));
         page-- > 0;) {
      PageId& held = pages_[group][static_cast<std::size_t>(page)];
      if (held == no_page) break;  // all before it went earlier
      release(group, held);
      held = no_page;
    }
  }
}

// Last pages first: they are the least likely to be found again, since whoever finds one needs all
// before it.
void BlockTable::clear() {
  for (std::size_t group = 0; group < pages_.size(); ++group) {
    while (!pages_[group].empty()) {
      const PageId page = pages_[group].back();
      pages_[group].pop_back();
      if (page != no_page) release(group, page);
    }
  }
}

std::int64_t BlockTable::find_prefix(std::span<const PageKey> keys, std::int64_t tokens,
                                     std::int64_t last_position) const {
  const std::int64_t own = tokens / page_tokens;
  if (index_ == nullptr) return own;
  const auto known = [&](std::size_t group, std::int64_t page) {
    return index_->find(static_cast<int>(group), keys[static_cast<std::size_t>(page)]).has_value();
  };
  auto end = static_cast<std::int64_t>(keys.size());
  for (std::size_t group = 0; group < pages_.size(); ++group) {
    if (window_of(group) != 0) continue;
    std::int64_t page = own;
    while (page < end && known(group, page)) ++page;
    end = page;
  }
  // A windowed group needs only the pages that the next query sees. From the end back: where one is
  // missing, the prefix can end at it at most, so that no page is asked for more than twice.
  for (bool settled = false; !settled && end > own;) {
    settled = true;
    const std::int64_t position = std::min(end * page_tokens, last_position);
    for (std::size_t group = 0; group < pages_.size() && settled; ++group) {
      if (window_of(group) == 0) continue;
      const std::int64_t first = std::max(first_page_seen(window_of(group), position), own);
      for (std::int64_t page = end; page-- > first && settled;) {
        if (known(group, page)) continue;
        end = page;
        settled = false;
      }
    }
  }
  return std::max(end, own);
}

void BlockTable::adopt(std::span<const PageKey> keys, std::int64_t tokens, std::int64_t pages,
                       std::int64_t last_position) {
  const std::int64_t own = tokens / page_tokens;
  if (pages <= own) return;
  const std::int64_t position = std::min(pages * page_tokens, last_position);
  release_outside_windows(position);
  for (std::size_t group = 0; group < pages_.size(); ++group) {
    std::vector<PageId>& held = pages_[group];
    while (static_cast<std::int64_t>(held.size()) > own) {
      if (held.back() != no_page) release(group, held.back());
      held.pop_back();
    }
    const std::int64_t first = first_page_seen(window_of(group), position);
    for (std::int64_t page = own; page < pages; ++page) {
      PageId found = no_page;
      if (page >= first) {
        found = index_->find(static_cast<int>(group), keys[static_cast<std::size_t>(page)]).value();
        index_->retain(static_cast<int>(group), found);
      }
      held.push_back(found);
    }
  }
}

void BlockTable::share(std::span<const PageKey> keys, std::int64_t first) {
  if (index_ == nullptr) return;
  for (std::size_t group = 0; group < pages_.size(); ++group) {
    for (std::int64_t page = first; page < static_cast<std::int64_t>(keys.size()); ++page) {
      const PageId held = pages_[group][static_cast<std::size_t>(page)];
      if (held == no_page) continue;
      index_->insert(static_cast<int>(group), keys[static_cast<std::size_t>(page)], held);
    }
  }
}

void BlockTable::forget() {
  if (index_ == nullptr) return;
  for (std::size_t group = 0; group < pages_.size(); ++group) {
    for (const PageId page : pages_[group]) {
      if (page != no_page) index_->forget(static_cast<int>(group), page);
    }
  }
}

}  // namespace octet
