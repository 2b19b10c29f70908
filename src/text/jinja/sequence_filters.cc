// Filters that work on the items of a value.
#include <algorithm>

#include "core/error.h"
#include "text/jinja/access.h"
#include "text/jinja/builtins.h"
#include "text/jinja/format.h"
#include "text/jinja/letter_case.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_operations.h"

namespace octet::jinja {
namespace {

bool is_given(const Value* argument) { return argument != nullptr && !argument->is_none(); }

Value generator(Runtime& runtime, std::vector<Value> items) {
  return runtime.budget.list(std::move(items), ListKind::generator);
}

Value nothing(const char* sentence) { return Value(Value::Storage(Undefined{nullptr, sentence})); }

Value filter_first(Runtime& runtime, const Value& input, const Arguments& arguments) {
  arguments.bind("first", {});
  const ListObject* list = input.as_list();
  if (list != nullptr && list->kind == ListKind::generator) {
    if (list->consumed < list->items.size()) return list->items[list->consumed++];
    return nothing("there is no first item in an empty sequence");
  }
  if (const MarkedText* text = input.text(); text != nullptr && !text->empty()) {
    return slice_text(runtime.budget, *text, 0, 1, 1);
  }
  if (list != nullptr && !list->items.empty()) return list->items.front();
  const std::vector<Value> items = items_of(input, runtime.budget);
  return items.empty() ? nothing("there is no first item in an empty sequence") : items.front();
}

Value filter_last(Runtime& runtime, const Value& input, const Arguments& arguments) {
  arguments.bind("last", {});
  const ListObject* list = input.as_list();
  if (list != nullptr && list->kind == ListKind::generator) {
    throw_bad_input("a generator has no last item");
  }
  if (list != nullptr && !list->items.empty()) return list->items.back();
  if (const MarkedText* text = input.text(); text != nullptr && !text->empty()) {
    return slice_text(runtime.budget, *text, -1, std::nullopt, 1);
  }
  const std::vector<Value> items = items_of(input, runtime.budget);
  return items.empty() ? nothing("there is no last item in an empty sequence") : items.back();
}

Value filter_length(Runtime& runtime, const Value& input, const Arguments& arguments) {
  arguments.bind("length", {});
  return Value::integer(static_cast<std::int64_t>(length_of(input, runtime.budget)));
}

Value filter_list(Runtime& runtime, const Value& input, const Arguments& arguments) {
  arguments.bind("list", {});
  return runtime.budget.list(items_of(input, runtime.budget));
}

Value filter_items(Runtime& runtime, const Value& input, const Arguments& arguments) {
  arguments.bind("items", {});
  if (input.is_undefined()) return generator(runtime, {});
  const DictObject* dict = input.as_dict();
  if (dict == nullptr) throw_bad_input("items needs a dict, not a {}", input.type_name());
  std::vector<Value> items;
  for (const auto& [key, value] : dict->entries()) {
    runtime.budget.push(items, runtime.budget.list({key, value}, ListKind::tuple));
  }
  return generator(runtime, std::move(items));
}

Value filter_join(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("join", {"d", "attribute"});
  const Value separator =
      bound[0] == nullptr ? runtime.budget.string("") : to_str(runtime.budget, *bound[0]);
  TextBuilder out(runtime.budget);
  bool is_first = true;
  for (const Value& item : items_of(input, runtime.budget)) {
    if (!is_first) out.append(*separator.text());
    is_first = false;
    append_str(out, is_given(bound[1]) ? get_path(item, *bound[1], nullptr, runtime.budget) : item);
  }
  return out.finish();
}

Value filter_reverse(Runtime& runtime, const Value& input, const Arguments& arguments) {
  arguments.bind("reverse", {});
  if (const MarkedText* text = input.text()) {
    return slice_text(runtime.budget, *text, std::nullopt, std::nullopt, -1);
  }
  const ListObject* list = input.as_list();
  const bool was_generator = list != nullptr && list->kind == ListKind::generator;
  std::vector<Value> items = items_of(input, runtime.budget);
  std::reverse(items.begin(), items.end());
  return runtime.budget.list(std::move(items),
                             was_generator ? ListKind::list : ListKind::generator);
}

Arguments without_first(const Arguments& arguments, std::size_t count) {
  Arguments rest;
  const auto begin = arguments.positional.begin() + static_cast<std::ptrdiff_t>(count);
  rest.positional.assign(begin, arguments.positional.end());
  rest.keywords = arguments.keywords;
  return rest;
}

Value filter_map(Runtime& runtime, const Value& input, const Arguments& arguments) {
  std::vector<Value> items;
  if (arguments.positional.empty()) {
    const auto bound = arguments.bind("map", {"attribute", "default"}, 1);
    const Value* fallback = is_given(bound[1]) ? bound[1] : nullptr;
    for (const Value& item : items_of(input, runtime.budget)) {
      runtime.budget.push(items, get_path(item, *bound[0], fallback, runtime.budget));
    }
    return generator(runtime, std::move(items));
  }
  const std::string& name = text_argument("map", arguments.positional[0]).bytes();
  const BuiltinFilter* filter = find_filter(name);
  if (filter == nullptr) throw_unsupported("the filter '{}' is not supported", name);
  const Arguments rest = without_first(arguments, 1);
  for (const Value& item : items_of(input, runtime.budget)) {
    runtime.budget.push(items, filter->apply(runtime, item, rest));
  }
  return generator(runtime, std::move(items));
}

// select, reject: by the item itself; selectattr, rejectattr: by one of its attributes.
template <bool keeps, bool by_attribute>
Value filter_select(Runtime& runtime, const Value& input, const Arguments& arguments) {
  constexpr std::size_t name_at = by_attribute ? 1 : 0;
  if (arguments.positional.size() < name_at) {
    throw_bad_input("selectattr and rejectattr need the name of an attribute");
  }
  const BuiltinTest* test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > name_at) {
    const std::string& name = text_argument("select", arguments.positional[name_at]).bytes();
    test = find_test(name);
    if (test == nullptr) throw_unsupported("the test '{}' is not supported", name);
    rest = without_first(arguments, name_at + 1);
  }
  std::vector<Value> items;
  // As Jinja: a value that is false gives nothing, even where it could not be walked over.
  if (!is_true(input)) return generator(runtime, {});
  for (const Value& item : items_of(input, runtime.budget)) {
    const Value subject =
        by_attribute ? get_path(item, arguments.positional[0], nullptr, runtime.budget) : item;
    const bool passes = test == nullptr ? is_true(subject) : test->apply(runtime, subject, rest);
    if (passes == keeps) runtime.budget.push(items, item);
  }
  return generator(runtime, std::move(items));
}

// What items are compared by: an attribute ("a.b", or "a,b" for several where allowed) or the item,
// with letters in lower case unless case matters.
class SortKey {
 public:
  // `fallback`, where there is one, stands for what is undefined.
  SortKey(Runtime& runtime, const Value* attribute, bool case_sensitive,
          const Value* fallback = nullptr)
      : runtime_(runtime), case_sensitive_(case_sensitive), fallback_(fallback) {
    if (!is_given(attribute)) return;
    if (const MarkedText* text = attribute->text()) {
      const MarkedText comma(",", false);
      paths_ = split(runtime.budget, *text, &comma, -1).as_list()->items;
    } else {
      paths_ = {*attribute};
    }
  }

  Value operator()(const Value& item) const {
    if (paths_.empty()) return fold(item);
    if (paths_.size() == 1) return fold(get_path(item, paths_[0], fallback_, runtime_.budget));
    std::vector<Value> keys;
    for (const Value& path : paths_) {
      runtime_.budget.push(keys, fold(get_path(item, path, nullptr, runtime_.budget)));
    }
    return runtime_.budget.list(std::move(keys));
  }

 private:
  Value fold(Value value) const {
    const MarkedText* text = value.text();
    if (text == nullptr || case_sensitive_) return value;
    return change_case(runtime_.budget, *text, LetterCase::lower);
  }

  Runtime& runtime_;
  bool case_sensitive_;
  const Value* fallback_;
  std::vector<Value> paths_;
};

std::vector<Value> sort_by_key(Runtime& runtime, std::vector<Value> items, const SortKey& key,
                               bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  keyed.reserve(items.size());
  for (Value& item : items) {
    Value item_key = key(item);
    keyed.emplace_back(std::move(item_key), std::move(item));
  }
  // Reversed, equal items keep their order, as Python's sort has it.
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? order(b.first, a.first, runtime.budget) < 0
                   : order(a.first, b.first, runtime.budget) < 0;
  });
  for (std::size_t i = 0; i < items.size(); ++i) items[i] = std::move(keyed[i].second);
  return items;
}

Value filter_sort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("sort", {"reverse", "case_sensitive", "attribute"});
  const bool reverse = bound[0] != nullptr && is_true(*bound[0]);
  const SortKey key(runtime, bound[2], bound[1] != nullptr && is_true(*bound[1]));
  return runtime.budget.list(sort_by_key(runtime, items_of(input, runtime.budget), key, reverse));
}

Value filter_dictsort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("dictsort", {"case_sensitive", "by", "reverse"});
  const std::string by = bound[1] == nullptr ? "key" : text_argument("dictsort", *bound[1]).bytes();
  if (by != "key" && by != "value") throw_bad_input("dictsort sorts by 'key' or 'value'");
  const Value items = filter_items(runtime, input, {});
  const Value position = Value::integer(by == "key" ? 0 : 1);
  const SortKey key(runtime, &position, bound[0] != nullptr && is_true(*bound[0]));
  const bool reverse = bound[2] != nullptr && is_true(*bound[2]);
  return runtime.budget.list(sort_by_key(runtime, items.as_list()->items, key, reverse));
}

// Groups of items with equal keys, in the order of these: tuples with the names `grouper` and
// `list`.
Value filter_groupby(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("groupby", {"attribute", "default", "case_sensitive"}, 1);
  const Value* fallback = is_given(bound[1]) ? bound[1] : nullptr;
  const SortKey key(runtime, bound[0], bound[2] != nullptr && is_true(*bound[2]), fallback);
  const SortKey exact_key(runtime, bound[0], true, fallback);
  std::vector<Value> groups;
  std::vector<Value> members;
  Value group_key;
  const auto close_group = [&] {
    if (members.empty()) return;
    const Value name = exact_key(members.front());
    const Value list = runtime.budget.list(std::move(members));
    runtime.budget.push(groups, runtime.budget.list({name, list}, ListKind::group));
    members.clear();
  };
  for (const Value& item : sort_by_key(runtime, items_of(input, runtime.budget), key, false)) {
    Value item_key = key(item);
    if (!members.empty() && !equal(item_key, group_key, runtime.budget)) close_group();
    group_key = std::move(item_key);
    runtime.budget.push(members, item);
  }
  close_group();
  return runtime.budget.list(std::move(groups));
}

// Rows of `linecount` items, the last one filled up where there is something to fill it with.
Value filter_batch(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("batch", {"linecount", "fill_with"}, 1);
  const std::int64_t count = integer_argument("batch", *bound[0]);
  std::vector<Value> rows;
  std::vector<Value> row;
  for (const Value& item : items_of(input, runtime.budget)) {
    if (static_cast<std::int64_t>(row.size()) == count) {
      runtime.budget.push(rows, runtime.budget.list(std::exchange(row, {})));
    }
    runtime.budget.push(row, item);
  }
  if (!row.empty()) {
    while (is_given(bound[1]) && static_cast<std::int64_t>(row.size()) < count) {
      runtime.budget.push(row, *bound[1]);
    }
    runtime.budget.push(rows, runtime.budget.list(std::move(row)));
  }
  return generator(runtime, std::move(rows));
}

// `slices` columns as even as can be, the first ones longer by one; the others filled up.
Value filter_slice(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("slice", {"slices", "fill_with"}, 1);
  const std::int64_t slices = integer_argument("slice", *bound[0]);
  if (slices == 0) throw_bad_input("slice needs a number of columns that is not 0");
  const std::vector<Value> items = items_of(input, runtime.budget);
  const auto length = static_cast<std::int64_t>(items.size());
  std::vector<Value> columns;
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < slices; ++i) {
    const bool is_long = i < length % slices;
    std::vector<Value> column;
    for (std::int64_t end = next + length / slices + (is_long ? 1 : 0); next < end; ++next) {
      runtime.budget.push(column, items[static_cast<std::size_t>(next)]);
    }
    if (is_given(bound[1]) && !is_long) runtime.budget.push(column, *bound[1]);
    runtime.budget.push(columns, runtime.budget.list(std::move(column)));
  }
  return generator(runtime, std::move(columns));
}

Value filter_unique(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("unique", {"case_sensitive", "attribute"});
  const SortKey key(runtime, bound[1], bound[0] != nullptr && is_true(*bound[0]));
  std::vector<Value> items;
  std::vector<Value> seen;
  for (const Value& item : items_of(input, runtime.budget)) {
    const Value item_key = key(item);
    const bool is_new = std::none_of(seen.begin(), seen.end(), [&](const Value& other) {
      return equal(item_key, other, runtime.budget);
    });
    if (!is_new) continue;
    runtime.budget.push(seen, item_key);
    runtime.budget.push(items, item);
  }
  return generator(runtime, std::move(items));
}

template <bool takes_greatest>
Value filter_extreme(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto bound =
      arguments.bind(takes_greatest ? "max" : "min", {"case_sensitive", "attribute"});
  const SortKey key(runtime, bound[1], bound[0] != nullptr && is_true(*bound[0]));
  const std::vector<Value> items = items_of(input, runtime.budget);
  if (items.empty()) return nothing("there is no least or greatest item in an empty sequence");
  const Value* best = &items[0];
  Value best_key = key(items[0]);
  for (std::size_t i = 1; i < items.size(); ++i) {
    Value item_key = key(items[i]);
    const std::partial_ordering comparison = order(item_key, best_key, runtime.budget);
    if (takes_greatest ? comparison > 0 : comparison < 0) {
      best = &items[i];
      best_key = std::move(item_key);
    }
  }
  return *best;
}

Value filter_sum(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("sum", {"attribute", "start"});
  Value total = bound[1] == nullptr ? Value::integer(0) : *bound[1];
  if (total.text() != nullptr) throw_bad_input("sum cannot join strings");
  for (const Value& item : items_of(input, runtime.budget)) {
    const Value term =
        is_given(bound[0]) ? get_path(item, *bound[0], nullptr, runtime.budget) : item;
    total = apply_binary(BinaryOperator::add, total, term, runtime.budget);
  }
  return total;
}

// getattr(): no items of dicts.
Value filter_attr(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("attr", {"name"}, 1);
  const Value name = to_str(runtime.budget, *bound[0]);
  return get_python_attribute(input, *name.get_if<StringPointer>(), runtime.budget);
}

constexpr BuiltinFilter filters[] = {
    {"attr", filter_attr},
    {"batch", filter_batch},
    {"count", filter_length},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"groupby", filter_groupby},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"map", filter_map},
    {"max", filter_extreme<true>},
    {"min", filter_extreme<false>},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<false, true>},
    {"reverse", filter_reverse},
    {"select", filter_select<true, false>},
    {"selectattr", filter_select<true, true>},
    {"slice", filter_slice},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
};

}  // namespace

const BuiltinFilter* find_sequence_filter(std::string_view name) {
  return find_by_name(filters, name);
}

}  // namespace octet::jinja
