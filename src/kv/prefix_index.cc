#include "kv/prefix_index.h"

#include <limits>

#include "core/error.h"

namespace octet {

PrefixIndex::PrefixIndex(PagePool& pool) : pool_(&pool), groups_(pool.layout().groups().size()) {
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    groups_[group].entries.resize(static_cast<std::size_t>(pool.capacity(static_cast<int>(group))));
  }
}

PrefixIndex::~PrefixIndex() {
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    for (const auto& [key, page] : groups_[group].pages) {
      pool_->release(static_cast<int>(group), page);
    }
  }
}

void PrefixIndex::insert(int group, const PageKey& key, PageId page) {
  Group& own = groups_[to_index(group)];
  Entry& entry = own.entries[to_index(page)];
  if (entry.known || !own.pages.try_emplace(key, page).second) return;
  pool_->retain(group, page);
  entry = {};
  entry.key = key;
  entry.known = true;
  ++insertions_;
}

std::optional<PageId> PrefixIndex::find(int group, const PageKey& key) const {
  const Group& own = groups_[to_index(group)];
  const auto found = own.pages.find(key);
  if (found == own.pages.end()) return std::nullopt;
  return found->second;
}

void PrefixIndex::retain(int group, PageId page) {
  if (groups_[to_index(group)].entries[to_index(page)].idle) end_idleness(group, page);
  pool_->retain(group, page);
}

void PrefixIndex::release(int group, PageId page) {
  const int left = pool_->release(group, page);
  if (left == 1 && groups_[to_index(group)].entries[to_index(page)].known) make_idle(group, page);
}

void PrefixIndex::make_idle(int group, PageId page) {
  Group& own = groups_[to_index(group)];
  Entry& entry = own.entries[to_index(page)];
  entry.idle = true;
  entry.idle_since = ++clock_;
  entry.previous = own.newest;
  entry.next = no_page;
  if (own.newest != no_page) {
    own.entries[to_index(own.newest)].next = page;
  } else {
    own.oldest = page;
  }
  own.newest = page;
  ++own.idle;
  pool_->set_idle(group, page, true);
}

void PrefixIndex::end_idleness(int group, PageId page) {
  Group& own = groups_[to_index(group)];
  Entry& entry = own.entries[to_index(page)];
  (entry.previous != no_page ? own.entries[to_index(entry.previous)].next : own.oldest) =
      entry.next;
  (entry.next != no_page ? own.entries[to_index(entry.next)].previous : own.newest) =
      entry.previous;
  entry.idle = false;
  --own.idle;
  pool_->set_idle(group, page, false);
}

void PrefixIndex::forget(int group, PageId page) {
  Group& own = groups_[to_index(group)];
  Entry& entry = own.entries[to_index(page)];
  if (!entry.known) return;
  if (entry.idle) end_idleness(group, page);
  own.pages.erase(entry.key);
  entry.known = false;
  pool_->release(group, page);
}

void PrefixIndex::evict_oldest(int group) {
  forget(group, groups_[to_index(group)].oldest);
  ++evictions_;
}

// The group whose oldest idle page has been idle longest; -1 where none is idle.
int PrefixIndex::group_of_oldest() const {
  int oldest = -1;
  std::uint64_t since = std::numeric_limits<std::uint64_t>::max();
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    const Group& own = groups_[group];
    if (own.oldest == no_page) continue;
    const Entry& entry = own.entries[to_index(own.oldest)];
    if (entry.idle_since < since) {
      since = entry.idle_since;
      oldest = static_cast<int>(group);
    }
  }
  return oldest;
}

bool PrefixIndex::make_room(std::span<const std::int64_t> pages) {
  if (pool_->can_allocate(pages)) return true;
  if (!pool_->could_allocate(pages)) return false;
  // A group's own idle pages first: they serve it as they are, while another group's help only once
  // a whole slab of them is free.
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    std::int64_t wanted = pages[group] - pool_->free_pages(static_cast<int>(group));
    while (wanted-- > 0 && groups_[group].oldest != no_page && !pool_->can_allocate(pages)) {
      evict_oldest(static_cast<int>(group));
    }
  }
  while (!pool_->can_allocate(pages)) {
    const int group = group_of_oldest();
    if (group < 0) {
      throw_error(ErrorKind::internal, "the cache promised pages that it does not have");
    }
    evict_oldest(group);
  }
  return true;
}

std::int64_t PrefixIndex::known_pages(int group) const {
  return static_cast<std::int64_t>(groups_[to_index(group)].pages.size());
}

}  // namespace octet
