// Tables behind text/unicode.h and text/unicode_normalization.h; see tools/character_classes.py and
// tools/unicode_tables.py.
#pragma once

#include <cstdint>
#include <span>

namespace octet {

struct CodePointRange {
  char32_t first;
  char32_t last;  // inclusive
};

// first * 16 + CharacterClass wherever the class changes, ascending; the first run begins at 0.
std::span<const std::uint32_t> character_class_runs();

std::span<const CodePointRange> han_ranges();
std::span<const CodePointRange> word_ranges();

// Characters younger than Unicode 9 that canonical normalisation would touch, ascending.
std::span<const CodePointRange> inert_ranges();

}  // namespace octet
