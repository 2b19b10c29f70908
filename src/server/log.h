// The server's log: a line each on standard error, with the time in UTC.
#pragma once

#include <string_view>

namespace octet {

// Throws Error{bad_input} for an unknown level; "info" and up is what is logged until it is called.
void start_log(std::string_view level);
// Writes out what is waiting.
void flush_log();

void log_info(std::string_view line);
void log_warning(std::string_view line);
void log_error(std::string_view line);

}  // namespace octet
