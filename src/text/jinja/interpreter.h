// Runs the tree of a template.
#pragma once

#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/marked_text.h"
#include "text/jinja/value.h"

namespace octet::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

// `now` is local time, for strftime_now(). Throws Error with line and column: bad_input for what
// Jinja refuses, raise_exception() and anything beyond limits.h; unsupported for what octet lacks.
MarkedText render(const Program& program, const Variables& variables, const std::tm& now);

}  // namespace octet::jinja
