#include "text/unicode.h"

#include <array>
#include <string>

#include <gtest/gtest.h>

namespace octet {
namespace {

bool is_surrogate(char32_t c) { return c >= 0xD800 && c < 0xE000; }

// How many of all code points `tokenizers` 0.23.3 matches as \p{L}, \p{N} and \s, and how many more
// its digit splitter takes for numbers.
TEST(CharacterClass, HasAsManyMembersAsInTheTokenizersPackage) {
  std::array<int, 10> members{};
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (!is_surrogate(c)) ++members[static_cast<std::size_t>(character_class(c))];
  }
  int letters = 0;
  for (const CharacterClass kind :
       {CharacterClass::uppercase, CharacterClass::lowercase, CharacterClass::titlecase,
        CharacterClass::modifier_letter, CharacterClass::other_letter}) {
    letters += members[static_cast<std::size_t>(kind)];
  }
  EXPECT_EQ(letters, 141028);
  EXPECT_EQ(members[static_cast<std::size_t>(CharacterClass::number)], 1911);
  EXPECT_EQ(members[static_cast<std::size_t>(CharacterClass::newer_number)], 13);
  EXPECT_EQ(members[static_cast<std::size_t>(CharacterClass::whitespace)], 25);
}

TEST(CharacterClass, KnowsCharactersOfEachClass) {
  for (const char32_t c :
       {U'a', U'Z', U'ª', U'ß', U'ʰ', U'א', U'ไ', U'日', U'한', U'𝒜', U'\U000323AF'}) {
    EXPECT_TRUE(is_letter(character_class(c))) << std::uint32_t{c};
  }
  for (const char32_t c : {U'0', U'9', U'²', U'½', U'Ⅷ', U'٣', U'२', U'①', U'𝟘', U'〇'}) {
    EXPECT_EQ(character_class(c), CharacterClass::number) << std::uint32_t{c};
  }
  for (const char32_t c : {U'\t', U'\v', U' ', U'\u0085', U'\u00A0', U'\u2028', U'\u3000'}) {
    EXPECT_EQ(character_class(c), CharacterClass::whitespace) << std::uint32_t{c};
  }
  for (const char32_t c : {U'\0', U'\x1C', U'_', U'\u180E', U'\u200B', U'\uFEFF', U'😀'}) {
    EXPECT_EQ(character_class(c), CharacterClass::other) << std::uint32_t{c};
  }
  EXPECT_EQ(character_class(U'\U00011DE0'), CharacterClass::newer_number);
  EXPECT_EQ(character_class(U'A'), CharacterClass::uppercase);
  EXPECT_EQ(character_class(U'ß'), CharacterClass::lowercase);
  EXPECT_EQ(character_class(U'ǅ'), CharacterClass::titlecase);
  EXPECT_EQ(character_class(U'ʰ'), CharacterClass::modifier_letter);
  EXPECT_EQ(character_class(U'日'), CharacterClass::other_letter);
  EXPECT_EQ(character_class(U'\u0301'), CharacterClass::mark);
}

TEST(CharacterClass, KnowsHanAndWords) {
  for (const char32_t c : {U'日', U'〇', U'々', U'⺀', U'\U000323AF'}) {
    EXPECT_TRUE(is_han(c)) << std::uint32_t{c};
  }
  for (const char32_t c : {U'a', U'の', U'カ', U'한', U'。'}) {
    EXPECT_FALSE(is_han(c)) << std::uint32_t{c};
  }
  for (const char32_t c : {U'a', U'_', U'é', U'日', U'7', U'\u0301', U'\u200D'}) {
    EXPECT_TRUE(is_word_character(c)) << std::uint32_t{c};
  }
  for (const char32_t c : {U' ', U'-', U'½', U'。', U'😀'}) {
    EXPECT_FALSE(is_word_character(c)) << std::uint32_t{c};
  }
}

TEST(Utf8, EncodesAndDecodesEveryCodePoint) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (is_surrogate(c)) continue;
    std::string text;
    append_utf8(c, text);
    ASSERT_EQ(find_invalid_utf8(text), std::nullopt) << std::uint32_t{c};
    const Character character = character_at(text, 0);
    ASSERT_EQ(character.code_point, c);
    ASSERT_EQ(character.bytes, text.size());
  }
  std::string text;
  append_utf8(U'€', text);
  append_utf8(U'😀', text);
  EXPECT_EQ(text, "\xE2\x82\xAC\xF0\x9F\x98\x80");
}

TEST(Utf8, FindsTheFirstByteThatIsNone) {
  EXPECT_EQ(find_invalid_utf8("plain € 😀"), std::nullopt);
  EXPECT_EQ(find_invalid_utf8("ab\x80"), 2u);            // a tail without a lead
  EXPECT_EQ(find_invalid_utf8("a\xC0\x80"), 1u);         // overlong
  EXPECT_EQ(find_invalid_utf8("\xE0\x9F\xBF"), 0u);      // overlong
  EXPECT_EQ(find_invalid_utf8("a\xED\xA0\x80"), 1u);     // a surrogate
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0u);  // beyond U+10FFFF
  EXPECT_EQ(find_invalid_utf8("\xF8\x88\x80\x80"), 0u);  // no lead of today
  EXPECT_EQ(find_invalid_utf8("abc\xE2\x82"), 3u);       // cut off
  EXPECT_EQ(find_invalid_utf8("abc\xE2\x82 de"), 3u);
}

// The expected texts are those of Python's bytes.decode(errors="replace").
TEST(Utf8, ReplacesEachMaximalInvalidPartOnce) {
  const auto replaced = [](std::string bytes) { return take_all_utf8(bytes); };
  EXPECT_EQ(replaced("a\xFF\xFE"
                     "b"),
            "a\uFFFD\uFFFDb");
  EXPECT_EQ(replaced("\xE2\x82"
                     "x"),
            "\uFFFDx");
  EXPECT_EQ(replaced("\xF0\x9F\x98"), "\uFFFD");
  EXPECT_EQ(replaced("\xF0\x9F\xF0\x9F\x98\x80"), "\uFFFD😀");
  EXPECT_EQ(replaced("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replaced("\xC0\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(replaced("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replaced("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                     "A"),
            "\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(replaced(""), "");
}

TEST(Utf8, HoldsBackAnUnfinishedCharacterAndNoMore) {
  std::string pending = "a\xF0\x9F\x98";
  EXPECT_EQ(take_complete_utf8(pending), "a");
  EXPECT_EQ(pending, "\xF0\x9F\x98");
  EXPECT_EQ(take_complete_utf8(pending), "");
  pending += "\x80\xE2";
  EXPECT_EQ(take_complete_utf8(pending), "😀");
  pending += "\x28";  // proves the lead wrong
  EXPECT_EQ(take_complete_utf8(pending), "\uFFFD(");
  EXPECT_EQ(pending, "");
}

}  // namespace
}  // namespace octet
