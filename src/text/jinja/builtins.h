// The filters, tests, functions and methods that templates can use, by name.
#pragma once

#include <ctime>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace octet::jinja {

// What a builtin works with. It never runs template code.
struct Runtime {
  Budget& budget;
  std::tm now;  // for strftime_now: local time
  // Namespaces live as long as the rendering: they are the only values that can change, so that
  // counted references to them could form a cycle.
  std::vector<std::unique_ptr<NamespaceObject>> namespaces;
  // What loop.changed() saw last, of loops that are running: here and not in the loop, which the
  // values may hold.
  std::map<const LoopObject*, Value> last_changed;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;

  const Value* find_keyword(std::string_view name) const;
  // One pointer per parameter, null where it was not given. Throws Error{bad_input} for too many,
  // too few (below `required`), or unknown arguments, naming `callee`.
  std::vector<const Value*> bind(std::string_view callee,
                                 std::initializer_list<std::string_view> parameters,
                                 std::size_t required = 0) const;
};

// The value of an argument, or Error{bad_input} that names `callee`.
std::int64_t integer_argument(std::string_view callee, const Value& value);
const MarkedText& text_argument(std::string_view callee, const Value& value);

// Sets an attribute of a namespace, new or not.
void set_attribute(Runtime& runtime, NamespaceObject& space, const std::string& name, Value value);

struct BuiltinFilter {
  std::string_view name;
  Value (*apply)(Runtime& runtime, const Value& input, const Arguments& arguments);
};
struct BuiltinTest {
  std::string_view name;
  bool (*apply)(Runtime& runtime, const Value& input, const Arguments& arguments);
};
struct BuiltinFunction {
  std::string_view name;
  Value (*apply)(Runtime& runtime, const Arguments& arguments);
};
struct BuiltinMethod {
  std::string_view name;
  // Null: Python has the method and octet does not.
  Value (*apply)(Runtime& runtime, const Value& object, const Arguments& arguments);
};

// A table of builtins by name.
template <typename Builtin, std::size_t count>
const Builtin* find_by_name(const Builtin (&table)[count], std::string_view name) {
  for (const Builtin& builtin : table) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

// Calls a method that octet has.
Value call_method(Runtime& runtime, const Value& object, const BuiltinMethod& method,
                  const Arguments& arguments);

// strftime() in the C locale; throws Error{unsupported} for a conversion that it does not have.
Value format_time(Runtime& runtime, const MarkedText& format);

// Null for a name that is not known. Filters are in three tables: those that make text or numbers,
// those that lay text out, and those that work on sequences.
const BuiltinFilter* find_text_filter(std::string_view name);
const BuiltinFilter* find_layout_filter(std::string_view name);
const BuiltinFilter* find_sequence_filter(std::string_view name);
const BuiltinFilter* find_filter(std::string_view name);
const BuiltinTest* find_test(std::string_view name);
const BuiltinFunction* find_function(std::string_view name);
const BuiltinMethod* find_string_method(std::string_view name);
const BuiltinMethod* find_list_method(std::string_view name);
const BuiltinMethod* find_dict_method(std::string_view name);
const BuiltinMethod* find_loop_method(std::string_view name);

}  // namespace octet::jinja
