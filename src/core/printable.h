// Text from hostile files, made fit for an error message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/utf8.h"

namespace octet {

// `text` in single quotes, on one line and safe for a terminal: control characters and bytes that
// are not UTF-8 become \xNN, and after `max_bytes` the rest is replaced by its length.
std::string printable(std::string_view text, std::size_t max_bytes = 100);

// The same escapes without quotes or a limit: the last thing that an error message goes through.
std::string single_line(std::string_view text);

}  // namespace octet
