#include "text/unicode_normalization.h"

#include <chrono>
#include <string>

#include "text/frozen_cases.h"

namespace octet {
namespace {

std::string nfc(std::string_view text) {
  return is_plainly_nfc(text) ? std::string(text) : normalize_nfc(text);
}

TEST(NormalizeNfc, EqualsTheTokenizersPackage) {
  const auto data = read_frozen_cases("pieces.json");
  int changed = 0;
  for (const auto& one : data.at("cases")) {
    const std::string text = one.at("text");
    EXPECT_EQ(nfc(text), one.value("nfc", text)) << one.dump();
    changed += one.contains("nfc") ? 1 : 0;
  }
  EXPECT_GE(changed, 40);
}

TEST(NormalizeNfc, ComposesOrdersAndExcludes) {
  EXPECT_EQ(nfc("e\u0301"), "é");
  EXPECT_EQ(nfc("a\u0301\u0323"), "ạ\u0301");  // dot below goes first
  EXPECT_EQ(nfc("\u212B\u2126"), "ÅΩ");        // singletons
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093C");    // a composition exclusion
  EXPECT_EQ(nfc("\u1100\u1161\u11A8"), "각");  // Hangul
  EXPECT_EQ(nfc("가\u11A7x"), "가\u11A7x");    // no trailing consonant: must stay
  EXPECT_EQ(nfc("\U00011935\U00011930"), "\U00011935\U00011930");  // composes since Unicode 13
}

TEST(NormalizeNfc, TakesPlainTextForPlain) {
  EXPECT_TRUE(is_plainly_nfc("plain text, é and ʰ\xCB\xBF"));
  EXPECT_FALSE(is_plainly_nfc("\u0300"));
}

// Half a megabyte of marks in the wrong order: a sort in n log n takes milliseconds, an insertion
// sort minutes.
TEST(NormalizeNfc, OrdersALongRunOfMarks) {
  std::string text = "x";
  std::string ordered_text = "x";
  constexpr int pairs = 125'000;
  for (int i = 0; i < pairs; ++i) text += "\u0315\u0316";
  for (int i = 0; i < pairs; ++i) ordered_text += "\u0316";
  for (int i = 0; i < pairs; ++i) ordered_text += "\u0315";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(nfc(text), ordered_text);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace octet
