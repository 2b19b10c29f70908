// The values of a template: Python's, as far as a chat template can tell.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/marked_text.h"

namespace octet::jinja {

class Budget;
class Value;
struct BuiltinFunction;
struct BuiltinMethod;
struct ForStatement;
struct Scope;
class DictObject;
struct StringObject;
struct ListObject;
struct LoopObject;
struct MacroObject;
struct MethodObject;
struct NamespaceObject;

using StringPointer = std::shared_ptr<const StringObject>;
using ListPointer = std::shared_ptr<const ListObject>;
using DictPointer = std::shared_ptr<const DictObject>;
using LoopPointer = std::shared_ptr<const LoopObject>;
using MacroPointer = std::shared_ptr<const MacroObject>;
using MethodPointer = std::shared_ptr<const MethodObject>;
using DictEntry = std::pair<Value, Value>;

// Jinja's default Undefined: prints as nothing, is false and empty, and refuses everything else.
struct Undefined {
  StringPointer name;            // of the variable or attribute; none: `detail` is a whole sentence
  const char* detail = nullptr;  // the type that lacks the attribute; none: a variable's name
};
struct None {};

// Bytes that a value holds against its budget; values made outside a rendering have none.
class Charge {
 public:
  Charge() = default;
  Charge(Budget& budget, std::size_t bytes) : budget_(&budget), bytes_(bytes) {}
  Charge(Charge&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Charge();

 private:
  Budget* budget_ = nullptr;
  std::size_t bytes_ = 0;
};

// `group` is a tuple of the filter `groupby`, whose two items have names as well.
enum class ListKind { list, tuple, group, range, generator, dict_keys, dict_values, dict_items };

// Values are immutable and shared, namespaces aside: these belong to the rendering, so that no
// cycle of references can form.
class Value {
 public:
  using Storage = std::variant<Undefined, None, bool, std::int64_t, double, StringPointer,
                               ListPointer, DictPointer, LoopPointer, MacroPointer, MethodPointer,
                               const BuiltinFunction*, NamespaceObject*>;

  Value() = default;  // undefined
  explicit Value(Storage storage) : storage_(std::move(storage)) {}
  static Value none() { return Value(Storage(None{})); }
  static Value boolean(bool value) { return Value(Storage(value)); }
  static Value integer(std::int64_t value) { return Value(Storage(value)); }
  static Value floating(double value) { return Value(Storage(value)); }
  // Variables for a template, made outside a rendering, of well-formed UTF-8. `literal`: see
  // MarkedText.
  static Value string(std::string_view text, bool literal);
  static Value list(std::vector<Value> items);
  // Of two entries with one key the later wins; keys are strings, numbers, booleans or none.
  static Value dict(std::vector<DictEntry> entries);

  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(storage_);
  }
  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&storage_);
  }
  const Storage& storage() const { return storage_; }

  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  const MarkedText* text() const;     // null for anything but a string
  bool is_markup() const;             // see StringObject
  const ListObject* as_list() const;  // null for anything but a list, of any kind
  const DictObject* as_dict() const;
  std::optional<std::int64_t> as_integer() const;  // of a boolean too, as in Python
  std::optional<double> as_number() const;         // of integers, floats and booleans

  // Levels of lists, dicts and their like: 0 for a plain value.
  int depth() const;
  // Python's name of the type: "str", "dict", "NoneType".
  const char* type_name() const;

 private:
  Storage storage_;
};

struct StringObject {
  MarkedText text;
  Charge charge;
  // Python's Markup, which the filters `safe` and `escape` give: text joined to it by "+" is
  // escaped, as by most of its methods.
  bool markup = false;
};

struct ListObject {
  std::vector<Value> items;
  ListKind kind = ListKind::list;
  int depth = 1;
  Charge charge;
  // Of a generator: how many items have been taken. Python's can be walked once.
  mutable std::size_t consumed = 0;
};

class DictObject {
 public:
  // Throws Error{bad_input} for a key that cannot be hashed.
  explicit DictObject(std::vector<DictEntry> entries);

  const std::vector<DictEntry>& entries() const { return entries_; }
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  int depth() const { return depth_; }
  void set_charge(Charge charge) { charge_ = std::move(charge); }

 private:
  // A string that two keys share exactly if Python holds them equal (1, 1.0 and True are).
  static std::optional<std::string> canonical_key(const Value& key);

  std::vector<DictEntry> entries_;
  std::map<std::string, std::size_t, std::less<>> index_;  // a tree: no flooding by chosen keys
  int depth_ = 1;
  Charge charge_;
};

struct NamespaceObject {
  struct Attribute {
    Value value;
    Charge charge;
  };
  std::map<std::string, Attribute, std::less<>> attributes;
  Charge charge;
};

// The `loop` of one iteration and its neighbours.
struct LoopObject {
  ListPointer items;
  mutable std::size_t index = 0;
  // Of a recursive loop: what calling it runs, and the scope around it, which may be gone by then.
  const ForStatement* statement = nullptr;  // none: it is not recursive
  std::weak_ptr<const Scope> scope;
  int recursion = 0;  // calls of the loop around this one
  Charge charge;
};

struct MethodObject {
  Value object;
  const BuiltinMethod* method;
  int depth;
  Charge charge;
};

bool is_true(const Value& value);

bool is_list_or_tuple(const Value& value);
// The kind of a part of a list, or of two joined: a group's is a tuple.
ListKind plain_kind(ListKind kind);

// Python's == and its order; both walk nested values at a cost in steps. order() throws
// Error{bad_input} for types that Python does not order.
bool equal(const Value& left, const Value& right, Budget& budget);
std::partial_ordering order(const Value& left, const Value& right, Budget& budget);

// Throws Error{bad_input} that says what is undefined.
[[noreturn]] void throw_undefined(const Undefined& undefined);

}  // namespace octet::jinja
