// Builds the tree of a template.
#pragma once

#include <string_view>

#include "text/jinja/ast.h"

namespace octet::jinja {

// Jinja 3.1's grammar with loopcontrols and transformers' `generation` block, without what reads
// other templates (extends, block, include, import), autoescape, recursive loops and * or ** in
// calls. Filters and tests are resolved here.
// Throws Error{bad_input} for broken syntax and Error{unsupported} for a construct, filter or test
// that is not known, both with line and column.
Program parse(std::string_view source);

}  // namespace octet::jinja
