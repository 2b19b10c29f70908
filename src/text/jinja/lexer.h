// Splits the source of a template into tokens.
#pragma once

#include <string_view>
#include <vector>

#include "core/error.h"
#include "text/jinja/token.h"

namespace octet::jinja {

// The rules are Jinja 3.1's with trim_blocks and lstrip_blocks, which is how the transformers
// package renders chat templates: "\r\n" and "\r" become "\n", one newline at the very end is
// dropped, a block or comment tag takes one newline after it and the blanks before it on its line,
// and "-" or "+" inside a tag's bracket strips all whitespace on that side, or none.
// Throws Error{bad_input} with line and column.
std::vector<Token> tokenize(std::string_view source);

// "chat template, line 3, column 7: " and the sentence.
[[noreturn]] void throw_at(ErrorKind kind, Position position, std::string_view sentence);

}  // namespace octet::jinja
