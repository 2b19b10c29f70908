// The global functions of chat templates.
#include <limits>

#include "core/error.h"
#include "text/jinja/access.h"
#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"

namespace octet::jinja {
namespace {

Value function_range(Runtime& runtime, const Arguments& arguments) {
  const auto bound = arguments.bind("range()", {"start", "stop", "step"}, 1);
  const std::int64_t first = integer_argument("range()", *bound[0]);
  const std::int64_t start = bound[1] == nullptr ? 0 : first;
  const std::int64_t stop = bound[1] == nullptr ? first : integer_argument("range()", *bound[1]);
  const std::int64_t step = bound[2] == nullptr ? 1 : integer_argument("range()", *bound[2]);
  if (step == 0) throw_bad_input("the step of range() cannot be 0");
  std::vector<Value> items;
  std::int64_t item = start;
  while (step > 0 ? item < stop : item > stop) {
    if (items.size() >= max_range_items) {
      throw_bad_input("range() of the template has more than {} items", max_range_items);
    }
    runtime.budget.push(items, Value::integer(item));
    if (__builtin_add_overflow(item, step, &item)) break;
  }
  return runtime.budget.list(std::move(items), ListKind::range);
}

// Entries of a dict, or of a sequence of pairs, and then the named arguments.
std::vector<DictEntry> entries_of(Runtime& runtime, const char* callee,
                                  const Arguments& arguments) {
  if (arguments.positional.size() > 1) throw_bad_input("{} takes at most one value", callee);
  std::vector<DictEntry> entries;
  for (const Value& source : arguments.positional) {
    if (const DictObject* dict = source.as_dict()) {
      entries = dict->entries();
      runtime.budget.step(entries.size());
      continue;
    }
    for (const Value& pair : items_of(source, runtime.budget)) {
      std::vector<Value> sides = items_of(pair, runtime.budget);
      if (sides.size() != 2) throw_bad_input("{} needs pairs of a key and a value", callee);
      entries.emplace_back(std::move(sides[0]), std::move(sides[1]));
    }
  }
  for (const auto& [name, value] : arguments.keywords) {
    entries.emplace_back(runtime.budget.string(name), value);
  }
  return entries;
}

Value function_dict(Runtime& runtime, const Arguments& arguments) {
  return runtime.budget.dict(entries_of(runtime, "dict()", arguments));
}

Value function_namespace(Runtime& runtime, const Arguments& arguments) {
  auto space = std::make_unique<NamespaceObject>();
  space->charge = runtime.budget.charge(sizeof(NamespaceObject) + sizeof(space));
  for (const auto& [key, value] : entries_of(runtime, "namespace()", arguments)) {
    const std::string& name = text_argument("namespace()", key).bytes();
    set_attribute(runtime, *space, name, value);
  }
  runtime.namespaces.push_back(std::move(space));
  return Value(Value::Storage(runtime.namespaces.back().get()));
}

Value function_raise_exception(Runtime&, const Arguments& arguments) {
  const auto bound = arguments.bind("raise_exception()", {"message"}, 1);
  throw_bad_input("{}", text_argument("raise_exception()", *bound[0]).bytes());
}

Value function_strftime_now(Runtime& runtime, const Arguments& arguments) {
  const auto bound = arguments.bind("strftime_now()", {"format"}, 1);
  return format_time(runtime, text_argument("strftime_now()", *bound[0]));
}

Value function_unsupported(Runtime&, const Arguments&) {
  throw_unsupported("the functions lipsum, cycler and joiner are not supported");
}

constexpr BuiltinFunction functions[] = {
    {"cycler", function_unsupported},  {"dict", function_dict},
    {"joiner", function_unsupported},  {"lipsum", function_unsupported},
    {"namespace", function_namespace}, {"raise_exception", function_raise_exception},
    {"range", function_range},         {"strftime_now", function_strftime_now},
};

}  // namespace

const BuiltinFunction* find_function(std::string_view name) {
  return find_by_name(functions, name);
}

void set_attribute(Runtime& runtime, NamespaceObject& space, const std::string& name, Value value) {
  const auto existing = space.attributes.find(name);
  if (existing != space.attributes.end()) {
    existing->second.value = std::move(value);
    return;
  }
  Charge charge = runtime.budget.charge(sizeof(NamespaceObject::Attribute) + 64 + name.size());
  space.attributes.emplace(name, NamespaceObject::Attribute{std::move(value), std::move(charge)});
}

}  // namespace octet::jinja
