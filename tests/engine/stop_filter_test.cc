#include "engine/stop_filter.h"

#include <random>

#include <gtest/gtest.h>

namespace octet {
namespace {

TEST(StopFilter, HoldsBackOnlyWhatCouldBeAStop) {
  StopFilter filter({"END", "\n\n"});
  EXPECT_EQ(filter.push("one E"), "one ");
  EXPECT_EQ(filter.push("lse\n"), "Else");
  EXPECT_EQ(filter.push("more"), "\nmore");
  EXPECT_EQ(filter.push("EN"), "");
  EXPECT_FALSE(filter.stopped());
  EXPECT_EQ(filter.push("D and on"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.push("nothing"), "");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopFilter, TheStopThatBeginsFirstWins) {
  StopFilter filter({"world", "lo w"});
  EXPECT_EQ(filter.push("hello world"), "hel");
  EXPECT_TRUE(filter.stopped());
}

TEST(StopFilter, WhatWasHeldBackComesAtTheEnd) {
  StopFilter filter({"abcd"});
  EXPECT_EQ(filter.push("xxabc"), "xx");
  EXPECT_EQ(filter.finish(), "abc");
}

TEST(StopFilter, OverlappingStartsAreKept) {
  StopFilter filter({"aab"});
  EXPECT_EQ(filter.push("aa"), "");
  EXPECT_EQ(filter.push("a"), "a");
  EXPECT_EQ(filter.push("b"), "");
  EXPECT_TRUE(filter.stopped());
}

// However the text is cut into pieces, the answer is what lies before the stop string that is
// complete first.
TEST(StopFilter, PiecesDoNotMatter) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (std::size_t i = 0; i < 20; ++i) text += "ab"[random() % 2];
    // "bb" lies within "abba": whichever is complete first ends the answer.
    const std::vector<std::string> stops = {"abba", "bb", "aaab"};
    std::size_t first = std::string::npos;
    std::size_t earliest_end = std::string::npos;
    for (const std::string& stop : stops) {
      const std::size_t found = text.find(stop);
      if (found == std::string::npos || found + stop.size() >= earliest_end) continue;
      first = found;
      earliest_end = found + stop.size();
    }
    StopFilter filter(stops);
    std::string got;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = 1 + random() % 4;
      got += filter.push(text.substr(at, length));
      at += length;
    }
    got += filter.finish();
    EXPECT_EQ(filter.stopped(), first != std::string::npos);
    EXPECT_EQ(got, text.substr(0, first));
  }
}

}  // namespace
}  // namespace octet
