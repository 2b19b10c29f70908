#include "kv/prefix_index.h"

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "kv/block_table.h"

namespace octet {
namespace {

constexpr int windowed = 0;
constexpr int full = 1;
constexpr int window = 130;  // three pages back from a page's start: ceil(129 / 64)

// Group 0: three windowed layers with small pages, several to a slab; group 1: one full layer.
KvLayout mixed_layout() {
  const std::vector<KvLayerGeometry> geometry = {
      {1, 16, window}, {2, 64, 0}, {1, 16, window}, {1, 16, window}};
  return KvLayout(geometry, make_kv_policy({.dtype = "bfloat16", .scales = "auto"}, 4));
}

PageKey key_of(int number) {
  PageKey key;
  for (std::size_t i = 0; i < sizeof(number); ++i) {
    key.bytes[i] = static_cast<std::byte>(number >> (8 * i));
  }
  return key;
}
std::vector<PageKey> keys_from(int first, int count) {
  std::vector<PageKey> keys;
  for (int i = 0; i < count; ++i) keys.push_back(key_of(first + i));
  return keys;
}

class PrefixIndexTest : public ::testing::Test {
 protected:
  explicit PrefixIndexTest(std::size_t slabs = 40)
      : layout_(mixed_layout()),
        pool_(layout_, slabs * PagePool::slab_bytes(layout_)),
        index_(pool_) {}

  // A table of `tokens` tokens whose full pages are known by keys first, first + 1, ...
  BlockTable shared_table(int first, std::int64_t tokens) {
    BlockTable table(pool_, &index_);
    EXPECT_TRUE(table.grow_to(tokens));
    table.share(keys_from(first, static_cast<int>(tokens / page_tokens)), 0);
    return table;
  }

  KvLayout layout_;
  PagePool pool_;
  PrefixIndex index_;
};

TEST_F(PrefixIndexTest, PagesOutliveTheirTableAndAreFoundByKey) {
  { BlockTable table = shared_table(100, 300); }
  EXPECT_EQ(pool_.held_pages(), 0);
  EXPECT_EQ(pool_.used_pages(full), 4);  // 300 tokens fill four pages
  EXPECT_EQ(index_.idle_pages(full), 4);
  EXPECT_TRUE(index_.find(full, key_of(103)).has_value());
  EXPECT_FALSE(index_.find(full, key_of(104)).has_value());

  const std::vector<PageKey> keys = keys_from(100, 5);
  BlockTable next(pool_, &index_);
  EXPECT_EQ(next.find_prefix(keys, 0, 1000), 4);
  next.adopt(keys, 0, 4, 1000);
  EXPECT_EQ(next.pages(full).size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(next.pages(full)[i], index_.find(full, keys[i]).value());
    EXPECT_EQ(pool_.references(full, next.pages(full)[i]), 2);
  }
  EXPECT_EQ(pool_.held_pages(full), 4);
}

TEST_F(PrefixIndexTest, AWindowedGroupNeedsOnlyWhatTheNextQuerySees) {
  {
    BlockTable table = shared_table(100, 64 * 10);
    // What left the window is idle at once, before the table ends.
    table.release_outside_windows(640);
    EXPECT_EQ(table.pages(windowed)[6], no_page);  // 640 - 129 = 511 is in page 7
    EXPECT_EQ(index_.idle_pages(windowed), 7);
  }
  const std::vector<PageKey> keys = keys_from(100, 10);
  // The query at 640 sees pages 7, 8, 9; give up 0 to 6 and nothing is lost.
  for (int page = 0; page < 7; ++page) {
    index_.forget(windowed, index_.find(windowed, key_of(100 + page)).value());
  }
  BlockTable next(pool_, &index_);
  EXPECT_EQ(next.find_prefix(keys, 0, 1000), 10);
  // A text of exactly ten pages computes its last token again: 639 - 129 = 510, in page 7 too.
  EXPECT_EQ(next.find_prefix(keys, 0, 639), 10);
  // Without page 8 only a prefix that ends before it would do, and that lacks its own window.
  index_.forget(windowed, index_.find(windowed, key_of(108)).value());
  EXPECT_EQ(next.find_prefix(keys, 0, 1000), 0);
  // A table that holds the first eight pages itself needs no more of them.
  ASSERT_TRUE(next.grow_to(64 * 8));
  EXPECT_EQ(next.find_prefix(keys, 64 * 8, 1000), 8);
  ASSERT_TRUE(next.grow_to(64 * 9));
  EXPECT_EQ(next.find_prefix(keys, 64 * 9, 1000), 10);
  next.adopt(keys, 64 * 9, 10, 1000);
  EXPECT_EQ(next.pages(windowed)[6], no_page);
  EXPECT_NE(next.pages(windowed)[7], no_page);
  EXPECT_EQ(next.pages(windowed)[9], index_.find(windowed, key_of(109)).value());
}

// One key more than the window's pages: at a window of 65 a recomputed last token sees two pages.
TEST(PrefixWindow, ARecomputedLastTokenMaySeeAPageMore) {
  EXPECT_EQ(first_page_seen(65, 640), 9);
  EXPECT_EQ(first_page_seen(65, 639), 8);
  EXPECT_EQ(first_page_seen(0, 639), 0);
  EXPECT_EQ(first_page_seen(65, 10), 0);
}

TEST(PrefixWindow, MostPagesAtOnceBoundsEveryRead) {
  for (const int w : {1, 2, 63, 64, 65, 130, 512}) {
    for (const std::int64_t chunk : {1, 2, 63, 64, 65, 200}) {
      std::int64_t most = 0;
      for (std::int64_t start = 0; start < 2000; ++start) {
        const std::int64_t end = std::min<std::int64_t>(start + chunk, 2000);
        most = std::max(most, (end + 63) / 64 - first_page_seen(w, start));
      }
      EXPECT_EQ(most_pages_at_once(w, 0, 2000, chunk), most) << w << ", " << chunk;
    }
  }
}

TEST_F(PrefixIndexTest, TheFirstPageOfAKeyStaysAndAPartialPageIsReplaced) {
  BlockTable first = shared_table(100, 192);
  BlockTable second(pool_, &index_);
  ASSERT_TRUE(second.grow_to(100));
  second.share(keys_from(100, 1), 0);
  EXPECT_EQ(index_.find(full, key_of(100)).value(), first.pages(full)[0]);
  const std::vector<PageKey> keys = keys_from(100, 3);
  EXPECT_EQ(second.find_prefix(keys, 100, 1000), 3);
  const PageId own = second.pages(full)[0];
  second.adopt(keys, 100, 3, 1000);
  EXPECT_EQ(second.pages(full)[0], own);  // computed twice, kept by each
  EXPECT_EQ(second.pages(full)[1], first.pages(full)[1]);
  EXPECT_EQ(second.pages(full)[2], first.pages(full)[2]);
}

TEST_F(PrefixIndexTest, WhatIsForgottenIsNotFoundButStaysWithItsHolders) {
  BlockTable table = shared_table(100, 128);
  table.forget();
  EXPECT_FALSE(index_.find(full, key_of(100)).has_value());
  EXPECT_EQ(pool_.references(full, table.pages(full)[0]), 1);
  table.clear();
  EXPECT_EQ(pool_.used_pages(), 0);
}

class SmallPrefixIndexTest : public PrefixIndexTest {
 protected:
  SmallPrefixIndexTest() : PrefixIndexTest(8) {}
};

TEST_F(SmallPrefixIndexTest, TheLeastRecentlyUsedGoFirstAndOfATextItsEnd) {
  { BlockTable old_text = shared_table(100, 64 * 2); }
  { BlockTable new_text = shared_table(200, 64 * 2); }
  {  // The old text is used again.
    BlockTable again(pool_, &index_);
    again.adopt(keys_from(100, 2), 0, 2, 1000);
  }
  // Four of eight slabs hold full pages, one or two the windowed ones.
  const std::int64_t free = 8 - 4 - 2;
  BlockTable other(pool_, &index_);
  for (std::int64_t pages = free + 1;; ++pages) {
    const std::vector<std::int64_t> wanted = {0, pages};
    ASSERT_TRUE(index_.make_room(wanted));
    const bool newer_end = index_.find(full, key_of(201)).has_value();
    const bool newer_start = index_.find(full, key_of(200)).has_value();
    const bool older_end = index_.find(full, key_of(101)).has_value();
    const bool older_start = index_.find(full, key_of(100)).has_value();
    EXPECT_LE(newer_end, newer_start);
    EXPECT_LE(newer_start, older_end);
    EXPECT_LE(older_end, older_start);
    if (!older_start) break;
  }
}

TEST_F(SmallPrefixIndexTest, RoomThatCannotBeMadeCostsNothing) {
  BlockTable held = shared_table(100, 64 * 3);
  { BlockTable idle = shared_table(200, 64 * 2); }
  const std::int64_t before = index_.known_pages(full);
  const std::vector<std::int64_t> too_many = {0, 6};
  EXPECT_FALSE(index_.make_room(too_many));
  EXPECT_EQ(index_.known_pages(full), before);
  EXPECT_EQ(index_.evictions(), 0);
}

// Random tables over random texts against a plain model of who holds what.
TEST(PrefixIndexProperty, AgreesWithASimpleModelOverALongHistory) {
  const KvLayout layout = mixed_layout();
  PagePool pool(layout, 24 * PagePool::slab_bytes(layout));
  std::mt19937 random(11);
  const auto below = [&random](std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
  };
  {
    PrefixIndex index(pool);
    struct Text {
      BlockTable table;
      int first_key;
      std::int64_t tokens = 0;
      std::int64_t shared = 0;
    };
    std::vector<std::unique_ptr<Text>> texts;
    std::int64_t found = 0;
    for (int step = 0; step < 30000; ++step) {
      const std::int64_t action = below(10);
      if (action < 2 && texts.size() < 12) {
        // Six texts that begin alike only with themselves.
        texts.push_back(std::make_unique<Text>(
            Text{BlockTable(pool, &index), static_cast<int>(below(6)) * 1000}));
      } else if (!texts.empty()) {
        const auto at = static_cast<std::size_t>(below(static_cast<std::int64_t>(texts.size())));
        Text& text = *texts[at];
        if (action < 4) {
          const std::vector<PageKey> keys = keys_from(text.first_key, 12);
          const std::int64_t pages = text.table.find_prefix(keys, text.tokens, 12 * 64);
          ASSERT_GE(pages, text.tokens / 64);
          if (pages > text.tokens / 64) {
            text.table.adopt(keys, text.tokens, pages, 12 * 64);
            text.tokens = pages * 64;
            text.shared = pages;
            ++found;
          }
        } else if (action < 8) {
          const std::int64_t end = std::min<std::int64_t>(text.tokens + 1 + below(150), 12 * 64);
          const std::vector<std::int64_t> missing = text.table.missing_pages(end);
          const bool possible = pool.could_allocate(missing);
          ASSERT_EQ(text.table.grow_to(end), possible);
          if (possible) {
            text.tokens = end;
            const std::vector<PageKey> keys = keys_from(text.first_key, static_cast<int>(end / 64));
            text.table.share(keys, text.shared);
            text.shared = end / 64;
            text.table.release_outside_windows(end);
          }
        } else if (action == 8) {
          texts.erase(texts.begin() + static_cast<std::ptrdiff_t>(at));
        } else if (below(20) == 0) {
          text.table.forget();
        }
      }

      // Who holds each page, by the tables; every other page in use is idle, and known.
      for (int group = 0; group < 2; ++group) {
        std::map<PageId, int> holders;
        for (const auto& text : texts) {
          for (const PageId page : text->table.pages(group)) {
            if (page != no_page) ++holders[page];
          }
        }
        ASSERT_EQ(pool.held_pages(group), static_cast<std::int64_t>(holders.size())) << step;
        std::int64_t known = 0;
        std::int64_t known_and_held = 0;
        for (int first = 0; first < 6000; first += 1000) {
          for (int page = 0; page < 12; ++page) {
            const std::optional<PageId> id = index.find(group, key_of(first + page));
            if (!id) continue;
            ++known;
            known_and_held += holders.contains(*id) ? 1 : 0;
            if (holders.contains(*id)) ++holders[*id];
            ASSERT_EQ(pool.references(group, *id), holders.contains(*id) ? holders[*id] : 1);
          }
        }
        for (const auto& [page, count] : holders) ASSERT_EQ(pool.references(group, page), count);
        ASSERT_EQ(index.known_pages(group), known);
        ASSERT_EQ(index.idle_pages(group), known - known_and_held);
        ASSERT_EQ(pool.used_pages(group), pool.held_pages(group) + index.idle_pages(group));
      }
    }
    EXPECT_GT(found, 500);
    EXPECT_GT(index.evictions(), 500);
    texts.clear();
    EXPECT_EQ(pool.held_pages(), 0);
  }
  EXPECT_EQ(pool.used_pages(), 0);
}

}  // namespace
}  // namespace octet
