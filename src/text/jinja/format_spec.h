// Python's format specifications ("{:>8.2f}") and printf-style formatting ("%5.2f").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja/budget.h"
#include "text/jinja/builtins.h"
#include "text/jinja/value.h"

namespace octet::jinja {

// [[fill]align][sign][#][0][width][grouping][.precision][type]
struct FormatSpec {
  std::string fill = " ";  // one character
  char align = 0;          // '<', '>', '^', '=' (after the sign), 0: by the type
  char sign = '-';         // '-', '+' or ' '
  bool alternate = false;
  std::int64_t width = 0;
  char grouping = 0;            // ',' or '_' between groups of digits
  std::int64_t precision = -1;  // negative: not given
  char type = 0;

  bool is_empty() const;
};

// Widths and precisions above this are refused; the longest double has 309 digits before its point.
inline constexpr std::int64_t max_format_width = 100'000;
inline constexpr std::int64_t max_format_precision = 1000;

// Throws Error{bad_input} for what Python refuses.
FormatSpec parse_format_spec(std::string_view spec);

// format(value, spec). Throws Error{bad_input} where the type takes no such specification.
void append_formatted(TextBuilder& out, const Value& value, const FormatSpec& spec);

// template % arguments: a tuple gives its items, a dict what "%(key)s" names, anything else itself.
// The text is Markup, and what is put in escaped, where the template is Markup.
Value percent_format(Budget& budget, const Value& text, const Value& arguments);

// text.format(...): fields by number or name, with attributes and items; "!s" and "!r"; and
// specifications, which may hold fields themselves.
Value brace_format(Runtime& runtime, const Value& text, const Arguments& arguments);

}  // namespace octet::jinja
