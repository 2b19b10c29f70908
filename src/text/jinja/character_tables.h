// What Python's str knows of each character; see tools/python_characters.py.
#pragma once

#include <cstdint>
#include <span>

namespace octet::jinja {

// Bits, in the order of tools/python_characters.py: str.isalpha() and so on, of one character.
enum class CharacterFlag : std::uint32_t {
  alpha = 1,
  decimal = 2,
  digit = 4,
  numeric = 8,
  printable = 16,
  lower = 32,
  upper = 64,
  title = 128,           // of category Lt
  case_ignorable = 256,  // skipped where str.lower() asks whether a sigma ends its word
};
inline constexpr int character_flag_bits = 9;

// first << character_flag_bits | flags wherever the flags change, ascending; the first run begins
// at 0.
std::span<const std::uint32_t> character_flag_runs();

// In the order of the tables' columns.
enum class CaseMapping { upper, lower, title, fold };

// Characters that map to one character each: every `stride`-th of [first, last], by adding.
// Ascending by `first`; two ranges of stride 2 may interleave.
struct CaseRange {
  char32_t first;
  char32_t last;
  std::uint32_t stride;
  std::int32_t differences[4];
};
std::span<const CaseRange> case_ranges();

// Characters that map to several, ascending.
struct LongCase {
  char32_t character;
  const char* mapped[4];  // UTF-8
};
std::span<const LongCase> long_cases();

}  // namespace octet::jinja
