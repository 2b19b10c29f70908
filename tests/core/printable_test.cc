#include "core/printable.h"

#include <string>

#include <gtest/gtest.h>

namespace octet {
namespace {

using namespace std::string_literals;

TEST(IsValidUtf8, AcceptsTheEdgesOfEveryLength) {
  for (const std::string& text :
       {""s, "a"s, "\0"s, "\x7F"s, "\xC2\x80"s, "\xDF\xBF"s, "\xE0\xA0\x80"s, "\xED\x9F\xBF"s,
        "\xEE\x80\x80"s, "\xEF\xBF\xBF"s, "\xF0\x90\x80\x80"s, "\xF4\x8F\xBF\xBF"s,
        "gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x99\x82"s}) {
    EXPECT_TRUE(is_valid_utf8(text)) << printable(text);
  }
}

TEST(IsValidUtf8, RefusesOverlongSurrogateCutAndStrayBytes) {
  for (const std::string& text :
       {"\x80"s, "\xBF"s, "\xC0\x80"s, "\xC1\xBF"s, "\xC2"s, "\xC2\x41"s, "\xE0\x9F\xBF"s,
        "\xED\xA0\x80"s, "\xE2\x82"s, "\xE2\x82\x41"s, "\xF0\x8F\xBF\xBF"s, "\xF0\x9F\x99"s,
        "\xF4\x90\x80\x80"s, "\xF5\x80\x80\x80"s, "\xFF"s, "ok\xFE"s}) {
    EXPECT_FALSE(is_valid_utf8(text)) << printable(text);
  }
}

TEST(Printable, QuotesAndEscapes) {
  EXPECT_EQ(printable("blk.0.attn_q.weight"), "'blk.0.attn_q.weight'");
  EXPECT_EQ(printable("caf\xC3\xA9"), "'caf\xC3\xA9'");
  EXPECT_EQ(printable("a\nb\x1B[2J\0"s), "'a\\x0ab\\x1b[2J\\x00'");
  EXPECT_EQ(printable("\x7F\xC2\x9B"), "'\\x7f\\xc2\\x9b'");  // DEL, and a terminal's 8-bit CSI
  EXPECT_EQ(printable("\xFF\xE2\x82"), "'\\xff\\xe2\\x82'");
}

TEST(Printable, CutsLongTextBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 4), "'abcd' (and 2 bytes more)");
  EXPECT_EQ(printable("abc\xE2\x82\xAC!", 4), "'abc\xE2\x82\xAC' (and 1 bytes more)");
}

TEST(SingleLine, EscapesWithoutQuotesOrALimit) {
  EXPECT_EQ(single_line("a\nb\x1B[2J"), "a\\x0ab\\x1b[2J");
  EXPECT_EQ(single_line(std::string(500, 'x')), std::string(500, 'x'));
}

}  // namespace
}  // namespace octet
