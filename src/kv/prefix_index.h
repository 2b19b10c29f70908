// Finds the pages of a text that was computed before.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv/page_key.h"
#include "kv/page_pool.h"

namespace octet {

// Holds one reference to each full page that it knows by key. A page that nothing else holds is
// idle: it is kept until memory is wanted and then given up, least recently used first. Each
// group's pages stand for themselves, since a windowed group keeps other pages than a full one.
//
// Not thread-safe: the engine thread owns it.
class PrefixIndex {
 public:
  // `pool` outlives the index.
  explicit PrefixIndex(PagePool& pool);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // Makes a full page, which the caller holds, known by its key. No effect where the key or the
  // page is known already: the first page of a key stays.
  void insert(int group, const PageKey& key, PageId page);
  std::optional<PageId> find(int group, const PageKey& key) const;

  // Another reference to a page that find() gave, and the end of a reference to any page. These
  // take the place of the pool's own retain and release for whoever holds pages that may be known.
  void retain(int group, PageId page);
  void release(int group, PageId page);

  // The page is not found any more; its holders keep it.
  void forget(int group, PageId page);

  // Gives up idle pages until `pages[group]` more can be had in every group at once. False: they
  // cannot, and nothing was given up.
  bool make_room(std::span<const std::int64_t> pages);

  std::int64_t known_pages(int group) const;
  std::int64_t idle_pages(int group) const { return groups_[to_index(group)].idle; }
  std::uint64_t insertions() const { return insertions_; }
  std::int64_t evictions() const { return evictions_; }

 private:
  // Of a page id; idle pages form a list, least recently used first.
  struct Entry {
    PageKey key;
    PageId previous = no_page;
    PageId next = no_page;
    std::uint64_t idle_since = 0;  // a count of releases
    bool known = false;
    bool idle = false;
  };
  struct Group {
    std::unordered_map<PageKey, PageId, PageKeyHash> pages;
    std::vector<Entry> entries;  // by page id
    PageId oldest = no_page;
    PageId newest = no_page;
    std::int64_t idle = 0;
  };
  static std::size_t to_index(int value) { return static_cast<std::size_t>(value); }
  void make_idle(int group, PageId page);
  void end_idleness(int group, PageId page);
  void evict_oldest(int group);
  int group_of_oldest() const;

  PagePool* pool_;
  std::vector<Group> groups_;
  std::uint64_t clock_ = 0;
  std::uint64_t insertions_ = 0;
  std::int64_t evictions_ = 0;
};

}  // namespace octet
