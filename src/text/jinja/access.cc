#include "text/jinja/access.h"

#include <algorithm>

#include "core/error.h"
#include "text/jinja/builtins.h"
#include "text/jinja/text_operations.h"
#include "text/jinja/unicode.h"

namespace octet::jinja {
namespace {

Value undefined_attribute(const Value& object, const StringPointer& name) {
  return Value(Value::Storage(Undefined{name, object.type_name()}));
}

Value undefined_because(const char* sentence) {
  return Value(Value::Storage(Undefined{nullptr, sentence}));
}

Value loop_attribute(const LoopObject& loop, std::string_view name, bool& found) {
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto length = static_cast<std::int64_t>(loop.items->items.size());
  found = true;
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 >= length);
  if (name == "length") return Value::integer(length);
  if (name == "revindex") return Value::integer(length - index);
  if (name == "revindex0") return Value::integer(length - index - 1);
  if (name == "depth") return Value::integer(loop.recursion + 1);
  if (name == "depth0") return Value::integer(loop.recursion);
  if (name == "previtem") {
    if (index == 0) return undefined_because("there is no previous item");
    return loop.items->items[loop.index - 1];
  }
  if (name == "nextitem") {
    if (index + 1 >= length) return undefined_because("there is no next item");
    return loop.items->items[loop.index + 1];
  }
  found = false;
  return Value();
}

const BuiltinMethod* find_method(const Value& object, std::string_view name) {
  if (object.text() != nullptr) return find_string_method(name);
  if (object.as_dict() != nullptr) return find_dict_method(name);
  if (is_list_or_tuple(object)) return find_list_method(name);
  if (object.is<LoopPointer>()) return find_loop_method(name);
  return nullptr;
}

bool changes_its_object(const Value& object, std::string_view name) {
  static constexpr std::string_view of_lists[] = {"append", "clear", "pop",    "reverse",
                                                  "insert", "sort",  "extend", "remove"};
  static constexpr std::string_view of_dicts[] = {"clear", "pop", "popitem", "setdefault",
                                                  "update"};
  const auto has = [name](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (object.as_dict() != nullptr) return has(of_dicts);
  const ListObject* list = object.as_list();
  return list != nullptr && list->kind == ListKind::list && has(of_lists);
}

// What Python's getattr() finds: no entries of dicts.
Value find_python_attribute(const Value& object, const StringPointer& name, bool& found,
                            Budget& budget) {
  const std::string& text = name->text.bytes();
  found = true;
  if (const BuiltinMethod* method = find_method(object, text)) return budget.method(object, method);
  if (changes_its_object(object, text)) {
    return undefined_because("methods that change a list or a dict are refused in templates");
  }
  if (const auto* loop = object.get_if<LoopPointer>()) return loop_attribute(**loop, text, found);
  if (const auto* space = object.get_if<NamespaceObject*>()) {
    const auto attribute = (*space)->attributes.find(text);
    if (attribute != (*space)->attributes.end()) return attribute->second.value;
  }
  if (const auto* macro = object.get_if<MacroPointer>()) {
    return macro_attribute(**macro, text, found, budget);
  }
  const ListObject* list = object.as_list();
  if (list != nullptr && list->kind == ListKind::group) {
    if (text == "grouper") return list->items[0];
    if (text == "list") return list->items[1];
  }
  found = false;
  return Value();
}

std::optional<std::size_t> resolve_index(std::int64_t index, std::size_t size) {
  if (index < 0) index += static_cast<std::int64_t>(size);
  if (index < 0 || index >= static_cast<std::int64_t>(size)) return std::nullopt;
  return static_cast<std::size_t>(index);
}

std::optional<std::int64_t> slice_bound(const Value& value) {
  if (value.is_none() || value.is_undefined()) return std::nullopt;
  const std::optional<std::int64_t> bound = value.as_integer();
  if (!bound)
    throw_bad_input("the bounds of a slice must be integers, not a {}", value.type_name());
  return bound;
}

}  // namespace

Value get_attribute(const Value& object, const StringPointer& name, Budget& budget) {
  if (const Undefined* undefined = object.get_if<Undefined>()) throw_undefined(*undefined);
  bool found = false;
  Value attribute = find_python_attribute(object, name, found, budget);
  if (found) return attribute;
  if (const DictObject* dict = object.as_dict()) {
    if (const Value* entry = dict->find(name->text.bytes())) return *entry;
  }
  return undefined_attribute(object, name);
}

Value get_python_attribute(const Value& object, const StringPointer& name, Budget& budget) {
  if (const Undefined* undefined = object.get_if<Undefined>()) throw_undefined(*undefined);
  bool found = false;
  Value attribute = find_python_attribute(object, name, found, budget);
  return found ? attribute : undefined_attribute(object, name);
}

Value get_item(const Value& object, const Value& key, Budget& budget) {
  if (const Undefined* undefined = object.get_if<Undefined>()) throw_undefined(*undefined);
  if (const DictObject* dict = object.as_dict()) {
    if (const Value* entry = dict->find(key)) return *entry;
  }
  const std::optional<std::int64_t> index = key.as_integer();
  const ListObject* list = object.as_list();
  if (index && (is_list_or_tuple(object) || (list != nullptr && list->kind == ListKind::range))) {
    if (const auto position = resolve_index(*index, list->items.size())) {
      return list->items[*position];
    }
  }
  if (const MarkedText* text = object.text(); text != nullptr && index) {
    budget.work(text->size());
    if (const auto position = resolve_index(*index, count_characters(text->bytes()))) {
      const std::size_t begin = offset_of_character(text->bytes(), *position);
      return budget.string(text->slice(begin, begin + character_bytes(text->bytes()[begin])),
                           object.is_markup());
    }
  }
  if (const StringPointer* name = key.get_if<StringPointer>()) {
    bool found = false;
    Value attribute = find_python_attribute(object, *name, found, budget);
    return found ? attribute : undefined_attribute(object, *name);
  }
  return undefined_because("there is no item under this index or key");
}

Value get_slice(const Value& object, const Value& begin, const Value& end, const Value& step,
                Budget& budget) {
  if (const Undefined* undefined = object.get_if<Undefined>()) throw_undefined(*undefined);
  const std::optional<std::int64_t> from = slice_bound(begin);
  const std::optional<std::int64_t> to = slice_bound(end);
  const std::int64_t stride = slice_bound(step).value_or(1);
  if (const MarkedText* text = object.text()) {
    const Value slice = slice_text(budget, *text, from, to, stride);
    return object.is_markup() ? budget.string(*slice.text(), true) : slice;
  }
  if (!is_list_or_tuple(object)) throw_bad_input("a {} has no slices", object.type_name());
  const ListObject& list = *object.as_list();
  const SliceRange range = resolve_slice(list.items.size(), from, to, stride);
  std::vector<Value> items;
  items.reserve(range.count);
  for (std::size_t i = 0; i < range.count; ++i) {
    // Within the list for every i < count, so that the product cannot overflow.
    const std::int64_t position = range.begin + static_cast<std::int64_t>(i) * range.step;
    budget.push(items, list.items[static_cast<std::size_t>(position)]);
  }
  return budget.list(std::move(items), plain_kind(list.kind));
}

Value get_path(const Value& object, const Value& path, const Value* fallback, Budget& budget) {
  std::vector<Value> keys;
  if (const MarkedText* text = path.text()) {
    const MarkedText dot(".", false);
    const Value parts = split(budget, *text, &dot, -1);
    for (const Value& part : parts.as_list()->items) {
      const std::string& name = part.text()->bytes();
      const bool is_index = !name.empty() && name.size() < 10 &&
                            name.find_first_not_of("0123456789") == std::string::npos;
      keys.push_back(is_index ? Value::integer(std::stoll(name)) : part);
    }
  } else {
    keys.push_back(path);
  }
  Value value = object;
  for (const Value& key : keys) {
    value = get_item(value, key, budget);
    if (fallback != nullptr && value.is_undefined()) value = *fallback;
  }
  return value;
}

std::vector<Value> items_of(const Value& iterable, Budget& budget) {
  std::vector<Value> items;
  if (const ListObject* list = iterable.as_list()) {
    const bool is_generator = list->kind == ListKind::generator;
    const std::size_t begin = is_generator ? list->consumed : 0;
    if (is_generator) list->consumed = list->items.size();
    items.reserve(list->items.size() - begin);
    for (std::size_t i = begin; i < list->items.size(); ++i) budget.push(items, list->items[i]);
    return items;
  }
  if (const DictObject* dict = iterable.as_dict()) {
    for (const DictEntry& entry : dict->entries()) budget.push(items, entry.first);
    return items;
  }
  if (const MarkedText* text = iterable.text()) return characters_of(budget, *text);
  if (iterable.is_undefined()) return items;
  throw_bad_input("a {} has no items to walk over", iterable.type_name());
}

std::size_t length_of(const Value& value, Budget& budget) {
  if (const MarkedText* text = value.text()) {
    budget.work(text->size());
    return count_characters(text->bytes());
  }
  const ListObject* list = value.as_list();
  if (list != nullptr && list->kind != ListKind::generator) return list->items.size();
  if (const DictObject* dict = value.as_dict()) return dict->entries().size();
  if (const LoopPointer* loop = value.get_if<LoopPointer>()) return (*loop)->items->items.size();
  if (value.is_undefined()) return 0;
  throw_bad_input("a {} has no length", value.type_name());
}

}  // namespace octet::jinja
