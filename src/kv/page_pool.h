// The one owner of the cache's memory: it alone allocates, counts and frees pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

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
// Not thread-safe: the engine thread owns it.
class PagePool {
 public:
  // Reserves floor(arena_bytes / slab) slabs of address space; the system commits memory as pages
  // are first written. Throws Error{out_of_memory} where not one slab fits or the system refuses.
  PagePool(const KvLayout& layout, std::size_t arena_bytes);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  static std::size_t slab_bytes(const KvLayout& layout);

  const KvLayout& layout() const { return layout_; }

  // A page with one reference, or nothing where the arena is full. Its bytes are whatever they
  // were.
  std::optional<PageId> allocate(int group);
  void retain(int group, PageId page);
  void release(int group, PageId page);
  int references(int group, PageId page) const;

  // Whether `pages[group]` more pages can be had in every group at once.
  bool can_allocate(std::span<const std::int64_t> pages) const;

  // Pages in use now, and the most that were ever in use at once.
  std::int64_t used_pages(int group) const { return groups_[to_index(group)].used; }
  std::int64_t used_pages() const;
  std::int64_t peak_used_pages() const { return peak_used_pages_; }
  std::size_t used_bytes() const;
  std::size_t peak_used_bytes() const { return peak_used_bytes_; }
  // Pages that group could have if no other group took one.
  std::int64_t capacity(int group) const;

  KvLayerView layer_view(int layer) const;
  std::span<std::byte> arena() const { return {arena_, arena_bytes_}; }

 private:
  static constexpr std::int32_t no_owner = -1;
  struct Slab {
    std::int32_t owner = no_owner;
    std::int32_t used = 0;
  };
  struct Group {
    std::int32_t pages_per_slab = 1;
    std::vector<PageId> free;              // of slabs that this group owns
    std::vector<std::int32_t> references;  // by page id
    std::int64_t used = 0;
  };
  static std::size_t to_index(int value) { return static_cast<std::size_t>(value); }
  void give_back_slab(int group, std::int32_t slab);
  void note_peak();

  KvLayout layout_;
  std::size_t slab_bytes_ = 0;
  std::size_t arena_bytes_ = 0;
  std::byte* arena_ = nullptr;
  std::vector<Slab> slabs_;
  std::vector<std::int32_t> free_slabs_;
  std::vector<Group> groups_;
  std::int64_t peak_used_pages_ = 0;
  std::size_t peak_used_bytes_ = 0;
};

}  // namespace octet
