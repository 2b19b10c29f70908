#include "kv/page_pool.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include <sys/mman.h>

#include "core/error.h"

namespace octet {

std::size_t PagePool::slab_bytes(const KvLayout& layout) {
  std::size_t bytes = 0;
  for (const KvGroup& group : layout.groups()) bytes = std::max(bytes, group.page_bytes);
  return bytes;
}

PagePool::PagePool(const KvLayout& layout, std::size_t arena_bytes)
    : layout_(layout), slab_bytes_(slab_bytes(layout)) {
  const std::size_t slabs = slab_bytes_ == 0 ? 0 : arena_bytes / slab_bytes_;
  if (slabs == 0) {
    throw_error(
        ErrorKind::out_of_memory,
        "a KV cache of {} bytes has no room for one page of {} tokens, which takes {} bytes",
        arena_bytes, page_tokens, slab_bytes_);
  }
  std::size_t most_pages = 0;
  for (const KvGroup& group : layout_.groups()) {
    most_pages = std::max(most_pages, slabs * (slab_bytes_ / group.page_bytes));
  }
  if (most_pages > static_cast<std::size_t>(std::numeric_limits<PageId>::max())) {
    throw_error(ErrorKind::out_of_memory, "a KV cache of {} bytes has more pages than can be named",
                arena_bytes);
  }
  arena_bytes_ = slabs * slab_bytes_;
  void* memory = mmap(nullptr, arena_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw_error(ErrorKind::out_of_memory, "a KV cache of {} bytes could not be had: {}",
                arena_bytes_, std::strerror(errno));
  }
  arena_ = static_cast<std::byte*>(memory);

  slabs_.resize(slabs);
  for (std::size_t slab = slabs; slab-- > 0;) {
    free_slabs_.push_back(static_cast<std::int32_t>(slab));
  }
  for (const KvGroup& group : layout_.groups()) {
    Group made;
    made.pages_per_slab = static_cast<std::int32_t>(slab_bytes_ / group.page_bytes);
    made.references.assign(slabs * static_cast<std::size_t>(made.pages_per_slab), 0);
    groups_.push_back(std::move(made));
  }
}

PagePool::~PagePool() { munmap(arena_, arena_bytes_); }

std::optional<PageId> PagePool::allocate(int group) {
  Group& owner = groups_[to_index(group)];
  if (owner.free.empty()) {
    if (free_slabs_.empty()) return std::nullopt;
    const std::int32_t slab = free_slabs_.back();
    free_slabs_.pop_back();
    slabs_[to_index(slab)] = {group, 0};
    for (std::int32_t part = owner.pages_per_slab; part-- > 0;) {
      owner.free.push_back(slab * owner.pages_per_slab + part);
    }
  }
  const PageId page = owner.free.back();
  owner.free.pop_back();
  owner.references[to_index(page)] = 1;
  ++owner.used;
  ++slabs_[to_index(page / owner.pages_per_slab)].used;
  note_peak();
  return page;
}

void PagePool::retain(int group, PageId page) {
  std::int32_t& count = groups_[to_index(group)].references[to_index(page)];
  if (count <= 0)
    throw_error(ErrorKind::internal, "page {} of group {} is not in use", page, group);
  ++count;
}

void PagePool::release(int group, PageId page) {
  Group& owner = groups_[to_index(group)];
  std::int32_t& count = owner.references[to_index(page)];
  if (count <= 0)
    throw_error(ErrorKind::internal, "page {} of group {} is not in use", page, group);
  if (--count > 0) return;
  owner.free.push_back(page);
  --owner.used;
  const std::int32_t slab = page / owner.pages_per_slab;
  if (--slabs_[to_index(slab)].used == 0) give_back_slab(group, slab);
}

void PagePool::give_back_slab(int group, std::int32_t slab) {
  Group& owner = groups_[to_index(group)];
  std::erase_if(owner.free, [&](PageId page) { return page / owner.pages_per_slab == slab; });
  slabs_[to_index(slab)] = {};
  free_slabs_.push_back(slab);
}

int PagePool::references(int group, PageId page) const {
  return groups_[to_index(group)].references[to_index(page)];
}

bool PagePool::can_allocate(std::span<const std::int64_t> pages) const {
  std::int64_t slabs = 0;
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    const std::int64_t missing =
        pages[group] - static_cast<std::int64_t>(groups_[group].free.size());
    const std::int64_t per_slab = groups_[group].pages_per_slab;
    if (missing > 0) slabs += (missing + per_slab - 1) / per_slab;
  }
  return slabs <= static_cast<std::int64_t>(free_slabs_.size());
}

std::int64_t PagePool::used_pages() const {
  std::int64_t pages = 0;
  for (const Group& group : groups_) pages += group.used;
  return pages;
}

std::size_t PagePool::used_bytes() const {
  std::size_t bytes = 0;
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    bytes += static_cast<std::size_t>(groups_[group].used) * layout_.groups()[group].page_bytes;
  }
  return bytes;
}

void PagePool::note_peak() {
  peak_used_pages_ = std::max(peak_used_pages_, used_pages());
  peak_used_bytes_ = std::max(peak_used_bytes_, used_bytes());
}

std::int64_t PagePool::capacity(int group) const {
  return static_cast<std::int64_t>(slabs_.size()) * groups_[to_index(group)].pages_per_slab;
}

KvLayerView PagePool::layer_view(int layer) const {
  const int group = layout_.group_of(layer);
  KvLayerView view;
  view.arena = arena_;
  view.slab_bytes = slab_bytes_;
  view.pages_per_slab = groups_[to_index(group)].pages_per_slab;
  view.group = &layout_.groups()[to_index(group)];
  view.page_bytes = view.group->page_bytes;
  view.layer_offset =
      view.group->layer_bytes * static_cast<std::size_t>(layout_.index_in_group(layer));
  view.layer = layer;
  view.constants = &layout_.constants(layer);
  return view;
}

}  // namespace octet
