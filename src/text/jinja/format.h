// Values as text: Python's str() and repr(), and JSON.
#pragma once

#include <string>

#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace octet::jinja {

// The shortest text that reads back as the same double, in Python's layout: "1.0", "1e+16", "nan".
std::string format_float(double value);

// str(): a string as it is, and everything else as repr(); undefined is empty. Throws
// Error{unsupported} for what Python would print as an address or as code (a generator, a macro).
void append_str(TextBuilder& out, const Value& value);
void append_repr(TextBuilder& out, const Value& value);
Value to_str(Budget& budget, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;
  std::string indent;          // of one level
  std::string item_separator;  // empty: ", ", or "," before a new line
  std::string key_separator = ": ";
};
// json.dumps(). Throws Error{bad_input} for what JSON cannot hold.
void append_json(TextBuilder& out, const Value& value, const JsonStyle& style);

}  // namespace octet::jinja
