#include "kv/page_pool.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "core/error.h"

namespace octet {

std::size_t PagePool::slab_bytes(const KvLayout& layout) {
  std::size_t bytes = 0;
  for (const KvGroup& group : layout.groups()) bytes = std::max(bytes, group.page_bytes);
  return bytes;
}

namespace {

std::uint64_t next_pool_id() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1);
}

}  // namespace

PagePool::PagePool(const KvLayout& layout, std::size_t arena_bytes, const ArenaSource& source)
    : id_(next_pool_id()), layout_(layout), slab_bytes_(slab_bytes(layout)) {
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
  arena_ = source(slabs * slab_bytes_);

  slabs_.resize(slabs);
  for (std::size_t slab = slabs; slab-- > 0;) {
    free_slabs_.push_back(static_cast<std::int32_t>(slab));
  }
  for (const KvGroup& group : layout_.groups()) {
    Group made;
    made.pages_per_slab = static_cast<std::int32_t>(slab_bytes_ / group.page_bytes);
    const std::size_t pages = slabs * static_cast<std::size_t>(made.pages_per_slab);
    made.references.assign(pages, 0);
    made.next_free.assign(pages, no_page);
    made.idle.assign(pages, false);
    groups_.push_back(std::move(made));
  }
}

// The slabs of a group that have a free page form a list; a free slab belongs to none.
void PagePool::link(Group& owner, std::int32_t slab) {
  Slab& linked = slabs_[to_index(slab)];
  linked.previous = none;
  linked.next = owner.first_partial;
  if (linked.next != none) slabs_[to_index(linked.next)].previous = slab;
  owner.first_partial = slab;
}

void PagePool::unlink(Group& owner, std::int32_t slab) {
  const Slab& linked = slabs_[to_index(slab)];
  if (linked.next != none) slabs_[to_index(linked.next)].previous = linked.previous;
  if (linked.previous != none) {
    slabs_[to_index(linked.previous)].next = linked.next;
  } else {
    owner.first_partial = linked.next;
  }
}

bool PagePool::take_slab(int group) {
  if (free_slabs_.empty()) return false;
  Group& owner = groups_[to_index(group)];
  const std::int32_t slab = free_slabs_.back();
  free_slabs_.pop_back();
  slabs_[to_index(slab)] = {};
  slabs_[to_index(slab)].owner = group;
  for (std::int32_t part = owner.pages_per_slab; part-- > 0;) {
    const PageId page = slab * owner.pages_per_slab + part;
    owner.next_free[to_index(page)] = slabs_[to_index(slab)].first_free;
    slabs_[to_index(slab)].first_free = page;
  }
  owner.free += owner.pages_per_slab;
  ++reclaimable_slabs_;
  link(owner, slab);
  return true;
}

void PagePool::give_back_slab(Group& owner, std::int32_t slab) {
  unlink(owner, slab);
  owner.free -= owner.pages_per_slab;
  --reclaimable_slabs_;
  slabs_[to_index(slab)] = {};
  free_slabs_.push_back(slab);
}

void PagePool::hold(Group& owner, Slab& slab) {
  ++owner.held;
  if (slab.held++ == 0) {
    --reclaimable_slabs_;
    owner.loose += owner.pages_per_slab - 1;
  } else {
    --owner.loose;
  }
  peak_held_pages_ = std::max(peak_held_pages_, held_pages());
  peak_held_bytes_ = std::max(peak_held_bytes_, held_bytes());
}

void PagePool::let_go(Group& owner, Slab& slab) {
  --owner.held;
  ++releases_;
  if (--slab.held == 0) {
    ++reclaimable_slabs_;
    owner.loose -= owner.pages_per_slab - 1;
  } else {
    ++owner.loose;
  }
}

std::optional<PageId> PagePool::allocate(int group) {
  Group& owner = groups_[to_index(group)];
  if (owner.first_partial == none && !take_slab(group)) return std::nullopt;
  const std::int32_t slab = owner.first_partial;
  Slab& from = slabs_[to_index(slab)];
  const PageId page = from.first_free;
  from.first_free = owner.next_free[to_index(page)];
  if (++from.used == owner.pages_per_slab) unlink(owner, slab);
  owner.references[to_index(page)] = 1;
  ++owner.used;
  --owner.free;
  hold(owner, from);
  return page;
}

void PagePool::retain(int group, PageId page) {
  std::int32_t& count = groups_[to_index(group)].references[to_index(page)];
  if (count <= 0)
    throw_error(ErrorKind::internal, "page {} of group {} is not in use", page, group);
  ++count;
}

int PagePool::release(int group, PageId page) {
  Group& owner = groups_[to_index(group)];
  std::int32_t& count = owner.references[to_index(page)];
  if (count <= 0)
    throw_error(ErrorKind::internal, "page {} of group {} is not in use", page, group);
  if (--count > 0) return count;
  const std::int32_t slab = page / owner.pages_per_slab;
  Slab& from = slabs_[to_index(slab)];
  if (owner.idle[to_index(page)]) {
    owner.idle[to_index(page)] = false;
  } else {
    let_go(owner, from);
  }
  owner.next_free[to_index(page)] = from.first_free;
  from.first_free = page;
  if (from.used-- == owner.pages_per_slab) link(owner, slab);
  --owner.used;
  ++owner.free;
  if (from.used == 0) give_back_slab(owner, slab);
  return 0;
}

void PagePool::set_idle(int group, PageId page, bool idle) {
  Group& owner = groups_[to_index(group)];
  if (owner.references[to_index(page)] != 1) {
    throw_error(ErrorKind::internal, "page {} of group {} has {} owners, expected one", page, group,
                owner.references[to_index(page)]);
  }
  if (owner.idle[to_index(page)] == idle) return;
  owner.idle[to_index(page)] = idle;
  if (idle) {
    let_go(owner, slab_of(owner, page));
  } else {
    hold(owner, slab_of(owner, page));
  }
}

int PagePool::references(int group, PageId page) const {
  return groups_[to_index(group)].references[to_index(page)];
}

bool PagePool::can_allocate(std::span<const std::int64_t> pages) const {
  std::int64_t slabs = 0;
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    const std::int64_t missing = pages[group] - groups_[group].free;
    const std::int64_t per_slab = groups_[group].pages_per_slab;
    if (missing > 0) slabs += (missing + per_slab - 1) / per_slab;
  }
  return slabs <= static_cast<std::int64_t>(free_slabs_.size());
}

bool PagePool::could_allocate(std::span<const std::int64_t> pages) const {
  std::int64_t slabs = 0;
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    const std::int64_t missing = pages[group] - groups_[group].loose;
    const std::int64_t per_slab = groups_[group].pages_per_slab;
    if (missing > 0) slabs += (missing + per_slab - 1) / per_slab;
  }
  return slabs <= static_cast<std::int64_t>(free_slabs_.size()) + reclaimable_slabs_;
}

std::int64_t PagePool::used_pages() const {
  std::int64_t pages = 0;
  for (const Group& group : groups_) pages += group.used;
  return pages;
}

std::int64_t PagePool::held_pages() const {
  std::int64_t pages = 0;
  for (const Group& group : groups_) pages += group.held;
  return pages;
}

std::size_t PagePool::bytes_of(std::int64_t Group::*pages) const {
  std::size_t bytes = 0;
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    bytes += static_cast<std::size_t>(groups_[group].*pages) * layout_.groups()[group].page_bytes;
  }
  return bytes;
}

std::size_t PagePool::used_bytes() const { return bytes_of(&Group::used); }
std::size_t PagePool::held_bytes() const { return bytes_of(&Group::held); }

std::int64_t PagePool::capacity(int group) const {
  return static_cast<std::int64_t>(slabs_.size()) * groups_[to_index(group)].pages_per_slab;
}

KvLayerView PagePool::layer_view(int layer) const {
  const int group = layout_.group_of(layer);
  KvLayerView view;
  view.arena = arena_->data();
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
