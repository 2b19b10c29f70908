// What Python's str can do, on text with marks. Everything counts its work against the budget.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace octet::jinja {

enum class Sides { both, left, right };
// Without `characters`, whitespace.
Value strip(Budget& budget, const MarkedText& text, const MarkedText* characters, Sides sides);

// "&", "<", ">" and quotes as HTML's entities: Jinja's `escape`.
Value escape(Budget& budget, const MarkedText& text);

// Spaces, or `fill` (one character), on the sides that str.ljust(), center() and rjust() pad, up to
// `width` characters.
Value pad(Budget& budget, const MarkedText& text, std::int64_t width, const MarkedText& fill,
          Sides sides);

// A negative count: all. An empty `old` stands before each character and at the end.
Value replace(Budget& budget, const MarkedText& text, const MarkedText& old,
              const MarkedText& replacement, std::int64_t count);

// A list of strings. No separator: runs of whitespace. A negative limit: no limit.
Value split(Budget& budget, const MarkedText& text, const MarkedText* separator,
            std::int64_t limit);
Value split_from_right(Budget& budget, const MarkedText& text, const MarkedText* separator,
                       std::int64_t limit);
Value split_lines(Budget& budget, const MarkedText& text, bool keep_ends);

// Byte offsets; linear time, whatever the texts (two-way string matching).
std::optional<std::size_t> find(Budget& budget, std::string_view text, std::string_view part,
                                std::size_t begin = 0);
std::optional<std::size_t> find_last(Budget& budget, std::string_view text, std::string_view part);

// Characters [begin, end) by Python's rules for indices, with a step that is not 0.
Value slice_text(Budget& budget, const MarkedText& text, std::optional<std::int64_t> begin,
                 std::optional<std::int64_t> end, std::int64_t step);

// A string of one character each.
std::vector<Value> characters_of(Budget& budget, const MarkedText& text);

// Start, end and number of items of a slice of `size` items: begin + i * step for i < count.
struct SliceRange {
  std::int64_t begin;
  std::int64_t step;
  std::size_t count;
};
SliceRange resolve_slice(std::size_t size, std::optional<std::int64_t> begin,
                         std::optional<std::int64_t> end, std::int64_t step);

}  // namespace octet::jinja
