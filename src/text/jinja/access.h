// Attributes, items, slices and walks: what is inside a value.
#pragma once

#include <vector>

#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace octet::jinja {

// All throw Error{bad_input} where Python or Jinja raises.

// object.name: a method before an entry of that name, for a dict too. Undefined where there is
// neither; an undefined object throws.
Value get_attribute(const Value& object, const StringPointer& name, Budget& budget);
// The same without entries of dicts: Python's getattr().
Value get_python_attribute(const Value& object, const StringPointer& name, Budget& budget);
// object[key]: an entry before a method.
Value get_item(const Value& object, const Value& key, Budget& budget);
// object[begin:end:step]; undefined or none: left out.
Value get_slice(const Value& object, const Value& begin, const Value& end, const Value& step,
                Budget& budget);
// "a.b.0": parts of parts, as the `attribute` of filters is written.
// What is undefined on the way becomes `fallback`, where there is one.
Value get_path(const Value& object, const Value& path, const Value* fallback, Budget& budget);

// name, arguments, catch_kwargs, catch_varargs and caller of a macro.
Value macro_attribute(const MacroObject& macro, std::string_view name, bool& found, Budget& budget);

// What a loop would walk over; a generator gives what is left of it, once.
std::vector<Value> items_of(const Value& iterable, Budget& budget);
std::size_t length_of(const Value& value, Budget& budget);

}  // namespace octet::jinja
