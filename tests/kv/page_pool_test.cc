#include "kv/page_pool.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

#include "core/error.h"
#include "kv/block_table.h"

namespace octet {
namespace {

// Two groups of unlike page sizes: three windowed layers of head_dim 16 and one full one of 64.
KvLayout mixed_layout() {
  const std::vector<KvLayerGeometry> geometry = {
      {1, 16, 128}, {2, 64, 0}, {1, 16, 128}, {1, 16, 128}};
  return KvLayout(geometry, make_kv_policy({.dtype = "bfloat16", .scales = "auto"}, 4));
}

TEST(PagePool, PagesLieApartWhateverTheGroup) {
  const KvLayout layout = mixed_layout();
  const std::size_t slab = PagePool::slab_bytes(layout);
  PagePool pool(layout, 7 * slab + slab / 2);
  EXPECT_EQ(pool.arena().size(), 7 * slab);

  std::vector<std::pair<int, PageId>> pages;
  for (int group = 0;; group = 1 - group) {
    const auto page = pool.allocate(group);
    if (!page) break;
    pages.emplace_back(group, *page);
  }
  ASSERT_GT(pages.size(), 7u);
  // Every run of every page is inside the arena and overlaps no other.
  std::set<std::pair<const std::byte*, const std::byte*>> ranges;
  for (const auto& [group, page] : pages) {
    for (int layer = 0; layer < layout.layers(); ++layer) {
      if (layout.group_of(layer) != group) continue;
      const KvLayerView view = pool.layer_view(layer);
      for (int head = 0; head < view.group->geometry.kv_heads; ++head) {
        const std::byte* start = view.run(page, head);
        EXPECT_GE(start, pool.arena().data());
        EXPECT_LE(start + view.group->run.bytes, pool.arena().data() + pool.arena().size());
        ranges.emplace(start, start + view.group->run.bytes);
      }
    }
  }
  const std::byte* last_end = nullptr;
  std::size_t runs = 0;
  for (const auto& [start, end] : ranges) {
    EXPECT_TRUE(last_end == nullptr || start >= last_end);
    last_end = end;
    ++runs;
  }
  std::size_t expected_runs = 0;
  for (const auto& [group, page] : pages) expected_runs += group == layout.group_of(1) ? 2 : 3;
  EXPECT_EQ(runs, expected_runs);
}

TEST(PagePool, ASlabOfFreedPagesServesTheOtherGroup) {
  const KvLayout layout = mixed_layout();
  PagePool pool(layout, 3 * PagePool::slab_bytes(layout));
  for (int round = 0; round < 4; ++round) {
    for (int group = 0; group < 2; ++group) {
      std::vector<PageId> pages;
      while (const auto page = pool.allocate(group)) pages.push_back(*page);
      EXPECT_EQ(static_cast<std::int64_t>(pages.size()), pool.capacity(group));
      for (const PageId page : pages) pool.release(group, page);
      EXPECT_EQ(pool.used_pages(), 0);
      EXPECT_EQ(pool.used_bytes(), 0u);
    }
  }
}

TEST(PagePool, APageIsFreedWithItsLastReference) {
  const KvLayout layout = mixed_layout();
  PagePool pool(layout, PagePool::slab_bytes(layout));
  const PageId page = pool.allocate(0).value();
  pool.retain(0, page);
  EXPECT_EQ(pool.references(0, page), 2);
  pool.release(0, page);
  EXPECT_EQ(pool.used_pages(0), 1);
  pool.release(0, page);
  EXPECT_EQ(pool.used_pages(0), 0);
  EXPECT_THROW(pool.release(0, page), Error);
  EXPECT_THROW(pool.retain(0, page), Error);
}

TEST(PagePool, AnArenaWithoutRoomForAPageIsRefused) {
  const KvLayout layout = mixed_layout();
  try {
    PagePool pool(layout, PagePool::slab_bytes(layout) - 1);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
  }
}

// What can_allocate promises, allocate keeps, over a long random history of both groups.
TEST(PagePool, CanAllocateTellsTheTruth) {
  const KvLayout layout = mixed_layout();
  PagePool pool(layout, 5 * PagePool::slab_bytes(layout));
  std::mt19937 random(7);
  std::vector<std::pair<int, PageId>> held;
  for (int step = 0; step < 20000; ++step) {
    if (random() % 3 == 0 && !held.empty()) {
      const std::size_t at = random() % held.size();
      pool.release(held[at].first, held[at].second);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
      continue;
    }
    const std::vector<std::int64_t> wanted = {static_cast<std::int64_t>(random() % 4),
                                              static_cast<std::int64_t>(random() % 3)};
    if (!pool.can_allocate(wanted)) {
      // It must be so: taking them one by one fails too.
      std::vector<std::pair<int, PageId>> taken;
      bool failed = false;
      for (int group = 0; group < 2; ++group) {
        for (std::int64_t i = 0; i < wanted[static_cast<std::size_t>(group)]; ++i) {
          const auto page = pool.allocate(group);
          if (!page) {
            failed = true;
            break;
          }
          taken.emplace_back(group, *page);
        }
      }
      EXPECT_TRUE(failed);
      for (const auto& [group, page] : taken) pool.release(group, page);
      continue;
    }
    for (int group = 0; group < 2; ++group) {
      for (std::int64_t i = 0; i < wanted[static_cast<std::size_t>(group)]; ++i) {
        const auto page = pool.allocate(group);
        ASSERT_TRUE(page.has_value());
        held.emplace_back(group, *page);
      }
    }
  }
  EXPECT_EQ(pool.used_pages(), static_cast<std::int64_t>(held.size()));
}

TEST(BlockTable, GrowsByWholePagesAllOrNone) {
  const KvLayout layout = mixed_layout();
  PagePool pool(layout, 3 * PagePool::slab_bytes(layout));
  BlockTable table(pool);
  EXPECT_TRUE(table.grow_to(1));
  EXPECT_EQ(table.pages(0).size(), 1u);
  EXPECT_TRUE(table.grow_to(64));
  EXPECT_EQ(pool.used_pages(), 2);
  EXPECT_TRUE(table.grow_to(65));
  EXPECT_EQ(pool.used_pages(), 4);
  const std::int64_t before = pool.used_pages();
  EXPECT_FALSE(table.grow_to(64 * 100));
  EXPECT_EQ(pool.used_pages(), before);
  table.clear();
  EXPECT_EQ(pool.used_pages(), 0);
}

TEST(BlockTable, WindowedGroupsGiveBackWhatNoQueryCanSee) {
  const KvLayout layout = mixed_layout();
  const int windowed = layout.group_of(0);
  const int full = layout.group_of(1);
  PagePool pool(layout, 40 * PagePool::slab_bytes(layout));
  {
    BlockTable table(pool);
    ASSERT_TRUE(table.grow_to(640));
    table.release_outside_windows(191);  // window 128: the query at 191 sees 64 to 191
    EXPECT_EQ(pool.used_pages(windowed), 9);
    EXPECT_EQ(table.pages(windowed)[0], no_page);
    EXPECT_NE(table.pages(windowed)[1], no_page);
    table.release_outside_windows(192);  // 65 to 192: token 64 is unseen, but 65 shares its page
    EXPECT_EQ(pool.used_pages(windowed), 9);
    table.release_outside_windows(640);  // 513 to 640
    EXPECT_EQ(pool.used_pages(windowed), 2);
    EXPECT_EQ(pool.used_pages(full), 10);
  }
  EXPECT_EQ(pool.used_pages(), 0);
}

}  // namespace
}  // namespace octet
