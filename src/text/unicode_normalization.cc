#include "text/unicode_normalization.h"

#include <algorithm>
#include <array>
#include <vector>

#include <utf8proc.h>

#include "core/error.h"
#include "text/unicode.h"
#include "text/unicode_tables.h"

namespace octet {
namespace {

constexpr auto composition_options =
    static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

// A character that normalisation must pass over.
bool is_inert(char32_t code_point) {
  // utf8proc 2.8 takes the Hangul vowel U+11A7 for an empty trailing consonant and swallows it.
  // Nothing composes with it, so it needs no normalisation.
  if (code_point == 0x11A7) return true;
  const auto ranges = inert_ranges();
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), code_point,
                       [](char32_t c, const CodePointRange& range) { return c < range.first; });
  return after != ranges.begin() && code_point <= (after - 1)->last;
}

int combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

void append_decomposed(char32_t code_point, std::vector<utf8proc_int32_t>& code_points) {
  std::array<utf8proc_int32_t, 8> parts{};  // no canonical decomposition has more than 4
  int boundary_state = 0;
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), parts.data(), parts.size(),
                              composition_options, &boundary_state);
  if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
    throw_error(ErrorKind::internal, "utf8proc cannot decompose U+{:04X}.",
                static_cast<std::uint32_t>(code_point));
  }
  code_points.insert(code_points.end(), parts.begin(), parts.begin() + count);
}

// The canonical ordering algorithm: a stable sort of each run of combining marks. utf8proc has its
// own, an insertion sort: 100 s for a megabyte of marks in the wrong order.
void order_marks(std::vector<utf8proc_int32_t>& code_points) {
  const auto is_mark = [](utf8proc_int32_t c) { return combining_class(c) != 0; };
  auto run = std::find_if(code_points.begin(), code_points.end(), is_mark);
  while (run != code_points.end()) {
    const auto end = std::find_if_not(run, code_points.end(), is_mark);
    std::stable_sort(run, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    run = std::find_if(end, code_points.end(), is_mark);
  }
}

// Composes the decomposed `code_points`, appends them to `text` and empties them.
void append_composed(std::vector<utf8proc_int32_t>& code_points, std::string& text) {
  order_marks(code_points);
  const auto count = utf8proc_normalize_utf32(
      code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()), composition_options);
  if (count < 0) throw_error(ErrorKind::internal, "utf8proc cannot compose a text.");
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(static_cast<char32_t>(code_points[static_cast<std::size_t>(i)]), text);
  }
  code_points.clear();
}

}  // namespace

bool is_plainly_nfc(std::string_view valid_text) {
  constexpr unsigned char lead_of_0300 = 0xCC;  // no byte of a lower character reaches it
  return std::all_of(valid_text.begin(), valid_text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < lead_of_0300; });
}

std::string normalize_nfc(std::string_view valid_text) {
  std::string text;
  text.reserve(valid_text.size());
  std::vector<utf8proc_int32_t> code_points;
  for (std::size_t position = 0; position < valid_text.size();) {
    const Character character = character_at(valid_text, position);
    if (is_inert(character.code_point)) {
      append_composed(code_points, text);
      append_utf8(character.code_point, text);
    } else {
      append_decomposed(character.code_point, code_points);
    }
    position += character.bytes;
  }
  append_composed(code_points, text);
  return text;
}

}  // namespace octet
