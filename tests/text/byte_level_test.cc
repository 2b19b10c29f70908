#include "text/byte_level.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "text/unicode.h"

namespace octet {
namespace {

TEST(ByteLevel, MapsBytesAsGpt2Does) {
  EXPECT_EQ(byte_level_character(0x00), U'Ā');
  EXPECT_EQ(byte_level_character('\n'), U'Ċ');
  EXPECT_EQ(byte_level_character(' '), U'Ġ');
  EXPECT_EQ(byte_level_character('!'), U'!');
  EXPECT_EQ(byte_level_character('~'), U'~');
  EXPECT_EQ(byte_level_character(0x7F), U'ġ');
  EXPECT_EQ(byte_level_character(0xA0), U'ł');
  EXPECT_EQ(byte_level_character(0xA1), U'¡');
  EXPECT_EQ(byte_level_character(0xAD), U'\u0143');
  EXPECT_EQ(byte_level_character(0xFF), U'ÿ');
}

TEST(ByteLevel, MapsBack) {
  std::set<char32_t> characters;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t character = byte_level_character(static_cast<std::uint8_t>(byte));
    characters.insert(character);
    std::string token;
    append_utf8(character, token);
    EXPECT_EQ(byte_level_bytes(token), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(characters.size(), 256u);
  EXPECT_EQ(byte_level_bytes("Ġcafé"), " caf\xE9");
  EXPECT_EQ(byte_level_bytes(""), "");
}

TEST(ByteLevel, RefusesOtherCharacters) {
  EXPECT_EQ(byte_level_bytes("a b"), std::nullopt);
  EXPECT_EQ(byte_level_bytes("a\u00ADb"), std::nullopt);
  EXPECT_EQ(byte_level_bytes("\u0144"), std::nullopt);
  EXPECT_EQ(byte_level_bytes("日"), std::nullopt);
}

}  // namespace
}  // namespace octet
