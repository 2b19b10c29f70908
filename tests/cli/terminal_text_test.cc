#include "cli/terminal_text.h"

#include <gtest/gtest.h>

namespace octet {
namespace {

TEST(TerminalText, KeepsLinesAndTabsAndShowsWhatWouldSteerATerminal) {
  EXPECT_EQ(terminal_text(""), "");
  EXPECT_EQ(terminal_text("a\n\tb\n"), "a\n\tb\n");
  EXPECT_EQ(terminal_text("\n\n"), "\n\n");
  EXPECT_EQ(terminal_text("h\u00e9\u4f60\U0001F600"), "h\u00e9\u4f60\U0001F600");
  EXPECT_EQ(terminal_text("\x1b[2J\r\x07\x7f"), "\\x1b[2J\\x0d\\x07\\x7f");
  EXPECT_EQ(terminal_text(std::string_view("\0x", 2)), "\\x00x");
  EXPECT_EQ(terminal_text("\u009b31m"), "\\xc2\\x9b31m");  // the 8-bit form of ESC [
  EXPECT_EQ(terminal_text("\xff"), "\\xff");
}

}  // namespace
}  // namespace octet
