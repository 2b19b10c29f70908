#include "text/special_token_matcher.h"

#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace octet {
namespace {

using Found = std::vector<std::pair<std::size_t, TokenId>>;  // begin, id

Found find_all(const SpecialTokenMatcher& matcher, std::string_view text) {
  Found found;
  std::size_t begin = 0;
  while (const auto match = matcher.find(text, begin)) {
    found.emplace_back(match->begin, match->id);
    begin = match->end;
  }
  return found;
}

TEST(SpecialTokenMatcher, PrefersTheLeftmostThenTheLongest) {
  const SpecialTokenMatcher matcher({{"ab", 1}, {"abcd", 2}, {"bcde", 3}, {"a", 4}, {"\xFF", 5}});
  EXPECT_EQ(find_all(matcher, "abcde"), (Found{{0, 2}}));
  EXPECT_EQ(find_all(matcher, "abcx"), (Found{{0, 1}}));
  EXPECT_EQ(find_all(matcher, "xbcdea"), (Found{{1, 3}, {5, 4}}));
  EXPECT_EQ(find_all(matcher, "aab"), (Found{{0, 4}, {1, 1}}));
  EXPECT_EQ(find_all(matcher, "abc"), (Found{{0, 1}}));
  EXPECT_EQ(find_all(matcher, "b\xFFx"), (Found{{1, 5}}));
  EXPECT_EQ(find_all(matcher, "xyz"), (Found{}));
  EXPECT_EQ(find_all(matcher, ""), (Found{}));
}

TEST(SpecialTokenMatcher, FindsNothingWithoutTokens) {
  EXPECT_EQ(find_all(SpecialTokenMatcher(), "<|im_end|>"), (Found{}));
}

}  // namespace
}  // namespace octet
