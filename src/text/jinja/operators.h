// Operators, as Python and Jinja define them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace octet::jinja {

// All throw Error{bad_input} where Python raises, and where an integer leaves 64 bits.
Value apply_unary(UnaryOperator sign, const Value& operand);
Value apply_binary(BinaryOperator sign, const Value& left, const Value& right, Budget& budget);
bool compare(Comparison comparison, const Value& left, const Value& right, Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);

}  // namespace octet::jinja
