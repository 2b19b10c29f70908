// The one header through which octet uses nlohmann-json: parsing with limits, and dumping that
// never throws over a string.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace octet {

// Objects keep the order of their keys. Finding a key is linear in their number.
using Json = nlohmann::ordered_json;

struct JsonLimits {
  // A value takes up to about 30 times its text: the limit bounds memory as well.
  std::size_t max_bytes = std::size_t{16} << 20;
  int max_depth = 64;  // of arrays and objects in each other
};

// Parses the whole of `text` in time linear in its length (times a logarithm for an object's keys).
// Throws Error{bad_input} with one sentence that starts with `what` (a file, or "the request's
// body") for text past the limits, that is not valid UTF-8, not JSON (NaN and numbers past a double
// among it), or that has an object with a key twice.
Json parse_json(std::string_view text, std::string_view what, const JsonLimits& limits = {});

// The text of `value`, on one line where `indent` is negative. A string's bytes that are not valid
// UTF-8 become U+FFFD; floats that JSON cannot express (NaN, infinities) become null.
std::string dump_json(const Json& value, int indent = -1);

}  // namespace octet
