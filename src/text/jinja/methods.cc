// Methods of lists, dicts and loops; those of strings are in string_methods.cc.
#include <algorithm>

#include "core/error.h"
#include "text/jinja/builtins.h"

namespace octet::jinja {
namespace {

Value list_index(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("index()", {"value"}, 1);
  const std::vector<Value>& items = object.as_list()->items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (equal(items[i], *bound[0], runtime.budget)) {
      return Value::integer(static_cast<std::int64_t>(i));
    }
  }
  throw_bad_input("index() did not find its value in the list");
}

Value list_count(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("count()", {"value"}, 1);
  const std::vector<Value>& items = object.as_list()->items;
  const auto count = std::count_if(items.begin(), items.end(), [&](const Value& item) {
    return equal(item, *bound[0], runtime.budget);
  });
  return Value::integer(count);
}

// Values never change: the list itself is its copy.
Value list_copy(Runtime&, const Value& object, const Arguments& arguments) {
  arguments.bind("copy()", {});
  return object;
}

constexpr BuiltinMethod list_methods[] = {
    {"copy", list_copy},
    {"count", list_count},
    {"index", list_index},
};

Value dict_get(Runtime&, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("get()", {"key", "default"}, 1);
  if (const Value* entry = object.as_dict()->find(*bound[0])) return *entry;
  return bound[1] == nullptr ? Value::none() : *bound[1];
}

template <ListKind kind>
Value dict_view(Runtime& runtime, const Value& object, const Arguments& arguments) {
  arguments.bind("keys(), values() or items()", {});
  std::vector<Value> items;
  for (const auto& [key, value] : object.as_dict()->entries()) {
    if (kind == ListKind::dict_items) {
      runtime.budget.push(items, runtime.budget.list({key, value}, ListKind::tuple));
    } else {
      runtime.budget.push(items, kind == ListKind::dict_keys ? key : value);
    }
  }
  return runtime.budget.list(std::move(items), kind);
}

Value dict_copy(Runtime&, const Value& object, const Arguments& arguments) {
  arguments.bind("copy()", {});
  return object;
}

constexpr BuiltinMethod dict_methods[] = {
    {"copy", dict_copy},
    {"fromkeys", nullptr},
    {"get", dict_get},
    {"items", dict_view<ListKind::dict_items>},
    {"keys", dict_view<ListKind::dict_keys>},
    {"values", dict_view<ListKind::dict_values>},
};

Value loop_cycle(Runtime&, const Value& object, const Arguments& arguments) {
  const std::vector<Value>& values = arguments.positional;
  if (values.empty() || !arguments.keywords.empty()) {
    throw_bad_input("loop.cycle() needs values to go through");
  }
  return values[(*object.get_if<LoopPointer>())->index % values.size()];
}

// Whether the values differ from those of the last call in this loop.
Value loop_changed(Runtime& runtime, const Value& object, const Arguments& arguments) {
  if (!arguments.keywords.empty()) throw_bad_input("loop.changed() takes no named arguments");
  const Value values = runtime.budget.list(arguments.positional, ListKind::tuple);
  const LoopObject* loop = object.get_if<LoopPointer>()->get();
  const auto [last, is_first] = runtime.last_changed.try_emplace(loop, values);
  if (is_first) return Value::boolean(true);
  const bool is_same = equal(last->second, values, runtime.budget);
  last->second = values;
  return Value::boolean(!is_same);
}

constexpr BuiltinMethod loop_methods[] = {{"changed", loop_changed}, {"cycle", loop_cycle}};

}  // namespace

const BuiltinMethod* find_list_method(std::string_view name) {
  return find_by_name(list_methods, name);
}
const BuiltinMethod* find_dict_method(std::string_view name) {
  return find_by_name(dict_methods, name);
}
const BuiltinMethod* find_loop_method(std::string_view name) {
  return find_by_name(loop_methods, name);
}

}  // namespace octet::jinja
