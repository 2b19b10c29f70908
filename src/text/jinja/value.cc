#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "text/jinja/budget.h"

namespace octet::jinja {
namespace {

int depth_of_items(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

// Exact: a 64-bit integer has more digits than a double.
std::partial_ordering order_numbers(std::int64_t left, double right) {
  constexpr double two_to_63 = 9223372036854775808.0;
  if (std::isnan(right)) return std::partial_ordering::unordered;
  if (right >= two_to_63) return std::partial_ordering::less;
  if (right < -two_to_63) return std::partial_ordering::greater;
  const double whole = std::trunc(right);
  const auto truncated = static_cast<std::int64_t>(whole);
  if (left != truncated) return left <=> truncated;
  return 0.0 <=> right - whole;
}

std::partial_ordering order_numbers(const Value& left, const Value& right) {
  const double* left_float = left.get_if<double>();
  const double* right_float = right.get_if<double>();
  if (left_float != nullptr && right_float != nullptr) return *left_float <=> *right_float;
  if (left_float != nullptr) return 0 <=> order_numbers(*right.as_integer(), *left_float);
  if (right_float != nullptr) return order_numbers(*left.as_integer(), *right_float);
  return *left.as_integer() <=> *right.as_integer();
}

bool is_sequence(ListKind kind) {
  return kind == ListKind::list || kind == ListKind::tuple || kind == ListKind::range;
}

bool equal_lists(const ListObject& left, const ListObject& right, Budget& budget) {
  if (&left == &right) return true;
  if (plain_kind(left.kind) != plain_kind(right.kind) || !is_sequence(plain_kind(left.kind))) {
    return false;
  }
  return std::equal(left.items.begin(), left.items.end(), right.items.begin(), right.items.end(),
                    [&](const Value& a, const Value& b) { return equal(a, b, budget); });
}

bool equal_dicts(const DictObject& left, const DictObject& right, Budget& budget) {
  if (left.entries().size() != right.entries().size()) return false;
  return std::all_of(left.entries().begin(), left.entries().end(), [&](const DictEntry& entry) {
    const Value* other = right.find(entry.first);
    return other != nullptr && equal(entry.second, *other, budget);
  });
}

}  // namespace

Charge::~Charge() {
  if (budget_ != nullptr) budget_->live_bytes_ -= bytes_;
}

Value Value::string(std::string_view text, bool literal) {
  return Value(Storage(
      std::make_shared<const StringObject>(StringObject{MarkedText(text, literal), Charge()})));
}

Value Value::list(std::vector<Value> items) {
  auto object = std::make_shared<ListObject>();
  object->depth = depth_of_items(items);
  object->items = std::move(items);
  return Value(Storage(ListPointer(std::move(object))));
}

Value Value::dict(std::vector<DictEntry> entries) {
  return Value(Storage(DictPointer(std::make_shared<const DictObject>(std::move(entries)))));
}

const MarkedText* Value::text() const {
  const StringPointer* string = get_if<StringPointer>();
  return string == nullptr ? nullptr : &(*string)->text;
}

bool Value::is_markup() const {
  const StringPointer* string = get_if<StringPointer>();
  return string != nullptr && (*string)->markup;
}

const ListObject* Value::as_list() const {
  const ListPointer* list = get_if<ListPointer>();
  return list == nullptr ? nullptr : list->get();
}

const DictObject* Value::as_dict() const {
  const DictPointer* dict = get_if<DictPointer>();
  return dict == nullptr ? nullptr : dict->get();
}

std::optional<std::int64_t> Value::as_integer() const {
  if (const std::int64_t* integer = get_if<std::int64_t>()) return *integer;
  if (const bool* boolean = get_if<bool>()) return *boolean ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::as_number() const {
  if (const double* number = get_if<double>()) return *number;
  if (const std::optional<std::int64_t> integer = as_integer()) {
    return static_cast<double>(*integer);
  }
  return std::nullopt;
}

int Value::depth() const {
  if (const ListObject* list = as_list()) return list->depth;
  if (const DictObject* dict = as_dict()) return dict->depth();
  if (const LoopPointer* loop = get_if<LoopPointer>()) return (*loop)->items->depth + 1;
  if (const MethodPointer* method = get_if<MethodPointer>()) return (*method)->depth;
  return 0;
}

const char* Value::type_name() const {
  if (const ListObject* list = as_list()) {
    switch (list->kind) {
      case ListKind::list:
        return "list";
      case ListKind::tuple:
        return "tuple";
      case ListKind::group:
        return "_GroupTuple";
      case ListKind::range:
        return "range";
      case ListKind::generator:
        return "generator";
      case ListKind::dict_keys:
        return "dict_keys";
      case ListKind::dict_values:
        return "dict_values";
      case ListKind::dict_items:
        return "dict_items";
    }
  }
  // In the order of Storage; a list, at its place, is named above.
  static constexpr const char* names[] = {"Undefined",
                                          "NoneType",
                                          "bool",
                                          "int",
                                          "float",
                                          "str",
                                          "list",
                                          "dict",
                                          "LoopContext",
                                          "Macro",
                                          "builtin_function_or_method",
                                          "function",
                                          "Namespace"};
  static_assert(std::size(names) == std::variant_size_v<Storage>);
  return names[storage_.index()];
}

DictObject::DictObject(std::vector<DictEntry> entries) {
  entries_.reserve(entries.size());
  for (DictEntry& entry : entries) {
    std::optional<std::string> key = canonical_key(entry.first);
    if (!key) {
      throw_bad_input(
          "a {} cannot be the key of a dict: only a string, number, boolean or none can",
          entry.first.type_name());
    }
    depth_ = std::max({depth_, entry.first.depth() + 1, entry.second.depth() + 1});
    const auto [position, is_new] = index_.try_emplace(std::move(*key), entries_.size());
    if (is_new) {
      entries_.push_back(std::move(entry));
    } else {
      entries_[position->second].second = std::move(entry.second);
    }
  }
}

const Value* DictObject::find(const Value& key) const {
  const std::optional<std::string> canonical = canonical_key(key);
  if (!canonical) return nullptr;
  const auto position = index_.find(*canonical);
  return position == index_.end() ? nullptr : &entries_[position->second].second;
}

const Value* DictObject::find(std::string_view key) const {
  const auto position = index_.find(fmt::format("s{}", key));
  return position == index_.end() ? nullptr : &entries_[position->second].second;
}

std::optional<std::string> DictObject::canonical_key(const Value& key) {
  if (const MarkedText* text = key.text()) return fmt::format("s{}", text->bytes());
  if (const std::optional<std::int64_t> integer = key.as_integer())
    return fmt::format("i{}", *integer);
  if (const double* number = key.get_if<double>()) {
    const bool is_integer = std::trunc(*number) == *number && std::abs(*number) < 9e18;
    if (is_integer) return fmt::format("i{}", static_cast<std::int64_t>(*number));
    return fmt::format("f{}", *number);
  }
  if (key.is_none()) return "n";
  return std::nullopt;
}

bool is_true(const Value& value) {
  if (const bool* boolean = value.get_if<bool>()) return *boolean;
  if (const std::int64_t* integer = value.get_if<std::int64_t>()) return *integer != 0;
  if (const double* number = value.get_if<double>()) return *number != 0.0;
  if (const MarkedText* text = value.text()) return !text->empty();
  if (const ListObject* list = value.as_list()) {
    return list->kind == ListKind::generator || !list->items.empty();
  }
  if (const DictObject* dict = value.as_dict()) return !dict->entries().empty();
  return !value.is_undefined() && !value.is_none();
}

bool is_list_or_tuple(const Value& value) {
  const ListObject* list = value.as_list();
  return list != nullptr && (list->kind == ListKind::list || list->kind == ListKind::tuple ||
                             list->kind == ListKind::group);
}

ListKind plain_kind(ListKind kind) { return kind == ListKind::group ? ListKind::tuple : kind; }

bool equal(const Value& left, const Value& right, Budget& budget) {
  budget.step();
  if (left.as_number() && right.as_number()) return order_numbers(left, right) == 0;
  if (left.storage().index() != right.storage().index()) return false;
  if (const MarkedText* text = left.text()) {
    budget.work(text->size());
    return text->bytes() == right.text()->bytes();
  }
  if (const ListObject* list = left.as_list()) return equal_lists(*list, *right.as_list(), budget);
  if (const DictObject* dict = left.as_dict()) return equal_dicts(*dict, *right.as_dict(), budget);
  if (const auto* loop = left.get_if<LoopPointer>()) return *loop == *right.get_if<LoopPointer>();
  if (const auto* macro = left.get_if<MacroPointer>()) {
    return *macro == *right.get_if<MacroPointer>();
  }
  if (const auto* method = left.get_if<MethodPointer>()) {
    return *method == *right.get_if<MethodPointer>();
  }
  if (const auto* function = left.get_if<const BuiltinFunction*>()) {
    return *function == *right.get_if<const BuiltinFunction*>();
  }
  if (const auto* space = left.get_if<NamespaceObject*>()) {
    return *space == *right.get_if<NamespaceObject*>();
  }
  return true;  // both undefined or both none
}

std::partial_ordering order(const Value& left, const Value& right, Budget& budget) {
  budget.step();
  if (left.as_number() && right.as_number()) return order_numbers(left, right);
  const MarkedText* left_text = left.text();
  const MarkedText* right_text = right.text();
  if (left_text != nullptr && right_text != nullptr) {
    budget.work(left_text->size());
    return left_text->bytes() <=> right_text->bytes();  // UTF-8 sorts as its code points do
  }
  const ListObject* left_list = left.as_list();
  const ListObject* right_list = right.as_list();
  if (is_list_or_tuple(left) && is_list_or_tuple(right) &&
      plain_kind(left_list->kind) == plain_kind(right_list->kind)) {
    const std::size_t common = std::min(left_list->items.size(), right_list->items.size());
    for (std::size_t i = 0; i < common; ++i) {
      if (!equal(left_list->items[i], right_list->items[i], budget)) {
        return order(left_list->items[i], right_list->items[i], budget);
      }
    }
    return left_list->items.size() <=> right_list->items.size();
  }
  for (const Value* side : {&left, &right}) {
    if (const Undefined* undefined = side->get_if<Undefined>()) throw_undefined(*undefined);
  }
  throw_bad_input("a {} and a {} have no order", left.type_name(), right.type_name());
}

void throw_undefined(const Undefined& undefined) {
  if (undefined.name == nullptr) {
    throw_bad_input("{}",
                    undefined.detail == nullptr ? "the value is undefined" : undefined.detail);
  }
  const std::string& name = undefined.name->text.bytes();
  if (undefined.detail == nullptr) throw_bad_input("'{}' is undefined", name);
  throw_bad_input("a {} has no attribute '{}'", undefined.detail, name);
}

}  // namespace octet::jinja
