// Text from hostile files, made fit for an error message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace octet {

// Well-formed UTF-8 as Unicode defines it (table 3-7 of the standard): no overlong forms, no
// surrogates, nothing past U+10FFFF.
bool is_valid_utf8(std::string_view text);

// `text` in single quotes, on one line and safe for a terminal: control characters and bytes that
// are not UTF-8 become \xNN, and after `max_bytes` the rest is replaced by its length.
std::string printable(std::string_view text, std::size_t max_bytes = 100);

// The same escapes without quotes or a limit: the last thing that an error message goes through.
std::string single_line(std::string_view text);

}  // namespace octet
