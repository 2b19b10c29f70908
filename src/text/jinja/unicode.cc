#include "text/jinja/unicode.h"

#include <algorithm>

namespace octet::jinja {
namespace {

bool is_continuation(char byte) { return !is_utf8_lead(byte); }

}  // namespace

std::size_t count_characters(std::string_view text) {
  return text.size() -
         static_cast<std::size_t>(std::count_if(text.begin(), text.end(), is_continuation));
}

std::size_t offset_of_character(std::string_view text, std::size_t index) {
  std::size_t offset = 0;
  while (index > 0 && offset < text.size()) {
    offset += character_bytes(text[offset]);
    --index;
  }
  return offset;
}

std::size_t previous_character(std::string_view text, std::size_t offset) {
  do {
    --offset;
  } while (offset > 0 && is_continuation(text[offset]));
  return offset;
}

bool is_python_space(char32_t character) {
  return (character >= 0x09 && character <= 0x0D) || (character >= 0x1C && character <= 0x20) ||
         character == 0x85 || character == 0xA0 || character == 0x1680 ||
         (character >= 0x2000 && character <= 0x200A) || character == 0x2028 ||
         character == 0x2029 || character == 0x202F || character == 0x205F || character == 0x3000;
}

bool is_python_line_end(char32_t character) {
  return (character >= 0x0A && character <= 0x0D) || (character >= 0x1C && character <= 0x1E) ||
         character == 0x85 || character == 0x2028 || character == 0x2029;
}

bool has_flag(char32_t character, CharacterFlag flag) {
  constexpr std::uint32_t flag_mask = (1u << character_flag_bits) - 1;
  const auto runs = character_flag_runs();
  // The first run that begins after the character; the first of all begins at 0.
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), character << character_flag_bits | flag_mask);
  return (*(after - 1) & static_cast<std::uint32_t>(flag)) != 0;
}

bool append_mapped(char32_t character, CaseMapping mapping, std::string& out) {
  if (character < 0x80) {
    const bool is_upper = character >= 'A' && character <= 'Z';
    const bool is_lower = character >= 'a' && character <= 'z';
    const bool lowers = mapping == CaseMapping::lower || mapping == CaseMapping::fold;
    if (lowers ? !is_upper : !is_lower) return false;
    out += static_cast<char>(character ^ 0x20);
    return true;
  }
  const auto column = static_cast<std::size_t>(mapping);
  const auto ranges = case_ranges();
  auto range = std::upper_bound(
      ranges.begin(), ranges.end(), character,
      [](char32_t value, const CaseRange& candidate) { return value < candidate.first; });
  // Two ranges may interleave: upper and lower letters in turn.
  for (int i = 0; i < 2 && range != ranges.begin(); ++i) {
    --range;
    if (character > range->last || (character - range->first) % range->stride != 0) continue;
    const std::int32_t difference = range->differences[column];
    if (difference == 0) return false;
    append_utf8(static_cast<char32_t>(static_cast<std::int64_t>(character) + difference), out);
    return true;
  }
  const auto cases = long_cases();
  const auto found = std::lower_bound(
      cases.begin(), cases.end(), character,
      [](const LongCase& candidate, char32_t value) { return candidate.character < value; });
  if (found == cases.end() || found->character != character) return false;
  const std::string_view mapped = found->mapped[column];
  if (mapped.size() == character_bytes(mapped[0]) && decode_at(mapped, 0) == character)
    return false;
  out.append(mapped);
  return true;
}

}  // namespace octet::jinja
