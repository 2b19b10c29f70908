// The escapes of a string in a template.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/token.h"

namespace octet::jinja {

// Python's: \n \t \\ \' \" and their like, \xHH, \uHHHH, \UHHHHHHHH, octal \ooo, a backslash before
// a newline drops both, and before anything else it stays. Throws, with the position of the string,
// Error{bad_input} for what Python refuses and Error{unsupported} for \N{...}.
std::string resolve_escapes(std::string_view body, Position position);

}  // namespace octet::jinja
