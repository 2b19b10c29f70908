#include "text/merge_table.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace octet {
namespace {

using Tokens = std::vector<TokenId>;

Tokens merged(const MergeTable& table, Tokens tokens) {
  MergeTable::Workspace workspace;
  table.apply(tokens, workspace);
  return tokens;
}

// The definition: as long as any neighbours merge, the leftmost of the lowest rank do.
Tokens merged_slowly(const std::vector<MergeTable::Merge>& merges, Tokens tokens) {
  std::map<std::pair<TokenId, TokenId>, std::size_t> ranks;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    ranks[{merges[rank].left, merges[rank].right}] = rank;
  }
  for (;;) {
    std::size_t best = merges.size();
    std::size_t best_position = 0;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto found = ranks.find({tokens[i], tokens[i + 1]});
      if (found != ranks.end() && found->second < best) {
        best = found->second;
        best_position = i;
      }
    }
    if (best == merges.size()) return tokens;
    tokens[best_position] = merges[best].result;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best_position) + 1);
  }
}

TEST(MergeTable, MergesByRankThenFromTheLeft) {
  const std::vector<MergeTable::Merge> merges = {{1, 2, 10}, {0, 1, 11}, {0, 0, 12}, {11, 10, 13}};
  const MergeTable table(14, merges);
  EXPECT_EQ(merged(table, {0, 1, 2}), (Tokens{0, 10}));
  EXPECT_EQ(merged(table, {0, 0, 0}), (Tokens{12, 0}));
  EXPECT_EQ(merged(table, {0, 1, 1, 2}), (Tokens{13}));
  EXPECT_EQ(merged(table, {2, 1, 0}), (Tokens{2, 1, 0}));
  EXPECT_EQ(merged(table, {0}), (Tokens{0}));
  EXPECT_EQ(merged(table, {}), (Tokens{}));
}

TEST(MergeTable, LetsTheLaterOfTwoEqualMergesHold) {
  const std::vector<MergeTable::Merge> merges = {{0, 1, 3}, {1, 2, 4}, {0, 1, 3}};
  EXPECT_EQ(merged(MergeTable(5, merges), {0, 1, 2}), (Tokens{0, 4}));
}

TEST(MergeTable, EqualsTheDefinitionOnRandomTables) {
  std::mt19937 generator(20240607);
  const auto below = [&](std::size_t limit) { return static_cast<TokenId>(generator() % limit); };
  for (int round = 0; round < 300; ++round) {
    // Three letters and tokens made of earlier ones, so that merges build on merges. A token has
    // one spelling, hence one length.
    constexpr TokenId letters = 3;
    std::vector<MergeTable::Merge> merges;
    std::vector<std::string> texts = {"a", "b", "c"};
    std::map<std::string, TokenId> ids = {{"a", 0}, {"b", 1}, {"c", 2}};
    for (int i = 0; i < 40; ++i) {
      const TokenId left = below(texts.size());
      const TokenId right = below(texts.size());
      const std::string text = texts[left] + texts[right];
      if (text.size() > 12) continue;
      const auto [entry, is_new] = ids.emplace(text, static_cast<TokenId>(texts.size()));
      if (is_new) texts.push_back(text);
      merges.push_back({left, right, entry->second});
    }
    std::shuffle(merges.begin(), merges.end(), generator);
    const MergeTable table(static_cast<TokenId>(texts.size()), merges);
    for (int word = 0; word < 20; ++word) {
      Tokens tokens(generator() % 60);
      for (TokenId& token : tokens) token = below(letters);
      ASSERT_EQ(merged(table, tokens), merged_slowly(merges, tokens)) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace octet
