// What Python's str says of every character, against hashes that tools/oracle/character_cases.py
// made.
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "core/utf8.h"
#include "text/corpus.h"
#include "text/frozen_cases.h"
#include "text/jinja/unicode.h"

namespace octet::jinja {
namespace {

template <typename Visit>
void for_each_character(Visit&& visit) {
  for (char32_t character = 0; character < 0x110000; ++character) {
    if (character < 0xD800 || character >= 0xE000) visit(character);
  }
}

TEST(CharactersTest, FlagsOfEveryCharacterEqualPythons) {
  const Json expected = read_frozen_cases("characters.json");
  const std::pair<const char*, CharacterFlag> flags[] = {
      {"isalpha", CharacterFlag::alpha},         {"isdecimal", CharacterFlag::decimal},
      {"isdigit", CharacterFlag::digit},         {"isnumeric", CharacterFlag::numeric},
      {"isprintable", CharacterFlag::printable}, {"islower", CharacterFlag::lower},
      {"isupper", CharacterFlag::upper}};
  for (const auto& [name, flag] : flags) {
    Hash hash;
    for_each_character([&hash, flag = flag](char32_t character) {
      if (has_flag(character, flag)) hash.add_number(character);
    });
    EXPECT_EQ(hash.text(), expected.at(name)) << name;
  }
}

TEST(CharactersTest, CaseMappingsOfEveryCharacterEqualPythons) {
  const Json expected = read_frozen_cases("characters.json");
  const std::pair<const char*, CaseMapping> mappings[] = {{"upper", CaseMapping::upper},
                                                          {"lower", CaseMapping::lower},
                                                          {"title", CaseMapping::title},
                                                          {"casefold", CaseMapping::fold}};
  for (const auto& [name, mapping] : mappings) {
    Hash hash;
    for_each_character([&hash, mapping = mapping](char32_t character) {
      std::string mapped;
      if (!append_mapped(character, mapping, mapped)) return;
      std::string bytes;
      append_utf8(character, bytes);
      hash.add_bytes(bytes + mapped);
    });
    EXPECT_EQ(hash.text(), expected.at(name)) << name;
  }
}

}  // namespace
}  // namespace octet::jinja
