// The one owner of the cache's memory: it alone allocates, counts and frees pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/memory_arena.h"
#include "kv/kv_layout.h"

namespace octet {

// A page of a group. The id says where it lies: slab id / pages_per_slab, part id % pages_per_slab.
using PageId = std::int32_t;
inline constexpr PageId no_page = -1;

// Where the runs of one layer lie; all that an operation needs to know of the cache.
struct KvLayerView {
  std::byte* arena = nullptr;
  std::size_t slab_bytes = 0;
  int pages_per_slab = 1;
  std::size_t page_bytes = 0;
  std::size_t layer_offset = 0;  // of this layer in a page of its group
  const KvGroup* group = nullptr;
  int layer = 0;                                // of the model
  const KvLayerConstants* constants = nullptr;  // static scales and key means; null: none

  std::byte* run(PageId page, int kv_head) const {
    const auto slab = static_cast<std::size_t>(page / pages_per_slab);
    const auto part = static_cast<std::size_t>(page % pages_per_slab);
    return arena + slab * slab_bytes + part * page_bytes + layer_offset +
           static_cast<std::size_t>(kv_head) * group->run.bytes;
  }
};

// The number that a KV head's stored keys or values are multiplied by where the layer's scales are
// static, else 1: their scales, if any, lie in the pages.
inline float static_key_scale(const KvLayerView& layer, int kv_head) {
  return is_static(layer.group->run.policy.key.scales)
             ? layer.constants->key_scales[static_cast<std::size_t>(kv_head)]
             : 1.0f;
}
inline float static_value_scale(const KvLayerView& layer, int kv_head) {
  return is_static(layer.group->run.policy.value.scales)
             ? layer.constants->value_scales[static_cast<std::size_t>(kv_head)]
             : 1.0f;
}

// One arena of equal slabs. A group takes a slab and cuts it into its own pages; when all of a
// slab's pages are free the slab goes back, so that no mix of groups strands memory. A slab is as
// large as the largest page of any group.
//
// A page in use is held (by a sequence) or idle: kept only for what may want it later, as the
// prefix index says by set_idle(). Idle pages count as memory that can be had.
//
// Not thread-safe: the engine thread owns it.
class PagePool {
 public:
  // Takes floor(arena_bytes / slab) slabs from `source`. Throws Error{out_of_memory} where not one
  // slab fits or there is no room for them.
  PagePool(const KvLayout& layout, std::size_t arena_bytes,
           const ArenaSource& source = allocate_host_arena);
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  static std::size_t slab_bytes(const KvLayout& layout);

  const KvLayout& layout() const { return layout_; }
  // No other pool of the process has it, or ever had: what is kept for a pool is kept under this.
  std::uint64_t id() const { return id_; }

  // A page with one reference, held, or nothing where no page is free. Its bytes are whatever they
  // were.
  std::optional<PageId> allocate(int group);
  void retain(int group, PageId page);
  // Returns the references that are left; the page is free with the last.
  int release(int group, PageId page);
  int references(int group, PageId page) const;
  // For a page with one reference.
  void set_idle(int group, PageId page, bool idle);

  // Whether `pages[group]` more pages can be had in every group at once, from what is free.
  bool can_allocate(std::span<const std::int64_t> pages) const;
  // The same once all idle pages were released.
  bool could_allocate(std::span<const std::int64_t> pages) const;

  // Pages in use now: all of them, and those that are held; and the most that were ever held.
  std::int64_t used_pages(int group) const { return groups_[to_index(group)].used; }
  std::int64_t used_pages() const;
  std::int64_t held_pages(int group) const { return groups_[to_index(group)].held; }
  std::int64_t held_pages() const;
  std::int64_t peak_held_pages() const { return peak_held_pages_; }
  std::size_t used_bytes() const;
  std::size_t held_bytes() const;
  std::size_t peak_held_bytes() const { return peak_held_bytes_; }
  // Pages of slabs that the group has; can be had without another slab.
  std::int64_t free_pages(int group) const { return groups_[to_index(group)].free; }
  // Pages that group could have if no other group took one.
  std::int64_t capacity(int group) const;
  // Grows whenever a page becomes free or idle: where it stands still, what could not be had still
  // cannot.
  std::uint64_t releases() const { return releases_; }

  KvLayerView layer_view(int layer) const;
  // Of the device that the pool lies on.
  std::span<std::byte> arena() const { return {arena_->data(), arena_->bytes()}; }
  // Every byte of the arena becomes `value`.
  void fill(std::byte value) { arena_->fill(value); }

 private:
  static constexpr std::int32_t none = -1;
  struct Slab {
    std::int32_t owner = none;
    std::int32_t used = 0;
    std::int32_t held = 0;
    PageId first_free = no_page;
    // Neighbours among the owner's slabs that have a free page.
    std::int32_t previous = none;
    std::int32_t next = none;
  };
  struct Group {
    std::int32_t pages_per_slab = 1;
    std::int32_t first_partial = none;     // slab with a free page
    std::vector<PageId> next_free;         // by page id: the slab's next free page
    std::vector<std::int32_t> references;  // by page id
    std::vector<bool> idle;                // by page id
    std::int64_t free = 0;                 // of slabs that this group owns
    std::int64_t used = 0;
    std::int64_t held = 0;
    std::int64_t loose = 0;  // pages that are not held, in slabs with a page that is
  };
  static std::size_t to_index(int value) { return static_cast<std::size_t>(value); }
  Slab& slab_of(const Group& owner, PageId page) {
    return slabs_[to_index(page / owner.pages_per_slab)];
  }
  bool take_slab(int group);
  void give_back_slab(Group& owner, std::int32_t slab);
  void link(Group& owner, std::int32_t slab);
  void unlink(Group& owner, std::int32_t slab);
  void hold(Group& owner, Slab& slab);
  void let_go(Group& owner, Slab& slab);
  std::size_t bytes_of(std::int64_t Group::*pages) const;

  std::uint64_t id_;
  KvLayout layout_;
  std::size_t slab_bytes_ = 0;
  std::unique_ptr<MemoryArena> arena_;
  std::vector<Slab> slabs_;
  std::vector<std::int32_t> free_slabs_;
  std::int64_t reclaimable_slabs_ = 0;  // owned, and all of their used pages are idle
  std::vector<Group> groups_;
  std::int64_t peak_held_pages_ = 0;
  std::size_t peak_held_bytes_ = 0;
  std::uint64_t releases_ = 0;
};

}  // namespace octet
