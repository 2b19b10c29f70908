#include "core/json_value.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/json.h"
#include "core/printable.h"

namespace octet {

namespace {

// Below this many members looking at each is faster than an index.
constexpr std::size_t most_unsorted_members = 64;

using Member = Json::object_t::value_type;

bool has_lesser_name(const Member* left, const Member* right) { return left->first < right->first; }

}  // namespace

struct JsonValue::Document {
  std::string file;
  Json root;
  // The members of large objects in the order of their names, so that a file of a million keys does
  // not cost a million times a million comparisons.
  std::unordered_map<const Json*, std::vector<const Member*>> sorted;

  // To be called once, after which nothing is changed. Texts are at most JsonLimits::max_depth
  // deep.
  void sort_large_objects(const Json& value) {
    if (value.is_array()) {
      for (const Json& element : value) sort_large_objects(element);
    }
    if (!value.is_object()) return;
    const auto& members = value.get_ref<const Json::object_t&>();
    for (const Member& member : members) sort_large_objects(member.second);
    if (members.size() <= most_unsorted_members) return;
    std::vector<const Member*>& names = sorted[&value];
    for (const Member& member : members) names.push_back(&member);
    std::sort(names.begin(), names.end(), has_lesser_name);
  }

  // The value of `key` in `object`, or null; a JSON null is no value.
  const Json* find(const Json& object, std::string_view key) const {
    const Json* value = find_any(object, key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

 private:
  const Json* find_any(const Json& object, std::string_view key) const {
    const auto& members = object.get_ref<const Json::object_t&>();
    if (members.size() <= most_unsorted_members) {
      for (const auto& [name, value] : members) {
        if (name == key) return &value;
      }
      return nullptr;
    }
    const std::vector<const Member*>& names = sorted.at(&object);
    const auto found = std::lower_bound(
        names.begin(), names.end(), key,
        [](const Member* member, std::string_view wanted) { return member->first < wanted; });
    return found != names.end() && (*found)->first == key ? &(*found)->second : nullptr;
  }
};

namespace {

constexpr std::string_view an_object = "an object";
constexpr std::string_view an_array = "an array";
constexpr std::string_view a_bool = "true or false";
constexpr std::string_view an_integer = "an integer of at most 63 bits";
constexpr std::string_view an_unsigned = "an integer that is not negative";
constexpr std::string_view a_number = "a number";
constexpr std::string_view a_string = "a string";

JsonKind kind_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::boolean:
      return JsonKind::boolean;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return JsonKind::integer;
    case Json::value_t::number_float:
      return JsonKind::number;
    case Json::value_t::string:
      return JsonKind::string;
    case Json::value_t::array:
      return JsonKind::array;
    case Json::value_t::object:
      return JsonKind::object;
    default:
      return JsonKind::null;
  }
}

std::string_view name_of(JsonKind kind) {
  switch (kind) {
    case JsonKind::null:
      return "null";
    case JsonKind::boolean:
      return "a boolean";
    case JsonKind::integer:
      return "an integer";
    case JsonKind::number:
      return "a number with a fraction or exponent";
    case JsonKind::string:
      return a_string;
    case JsonKind::array:
      return an_array;
    case JsonKind::object:
      return an_object;
  }
  return "a value";
}

template <typename T>
std::optional<T> find_as(const JsonValue& object, std::string_view key,
                         T (JsonValue::*read)() const) {
  const std::optional<JsonValue> value = object.find(key);
  if (!value) return std::nullopt;
  return ((*value).*read)();
}

}  // namespace

JsonValue::JsonValue(std::shared_ptr<const Document> document, const Json* node, std::string path)
    : document_(std::move(document)), node_(node), path_(std::move(path)) {}

JsonValue JsonValue::parse(std::string_view text, const std::string& file) {
  auto document = std::make_shared<Document>();
  document->file = file;
  document->root = parse_json(text, file);
  document->sort_large_objects(document->root);
  const Json* root = &document->root;
  return {std::move(document), root, ""};
}

const std::string& JsonValue::file() const { return document_->file; }

std::string JsonValue::where() const {
  if (path_.empty()) return file();
  return fmt::format("{}: key {}", file(), printable(path_));
}

JsonKind JsonValue::kind() const { return kind_of(*node_); }

std::string JsonValue::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void JsonValue::fail_kind(std::string_view expected) const {
  throw_bad_input("{} holds {}, expected {}", path_.empty() ? file() + ":" : where(),
                  name_of(kind()), expected);
}

void JsonValue::fail_missing(std::string_view key) const {
  throw_bad_input("{}: key {} is missing", file(), printable(path_of(key)));
}

void JsonValue::expect(JsonKind kind, std::string_view what) const {
  if (this->kind() != kind) fail_kind(what);
}

std::vector<std::string> JsonValue::keys() const {
  expect(JsonKind::object, an_object);
  std::vector<std::string> keys;
  for (const auto& [key, value] : node_->get_ref<const Json::object_t&>()) keys.push_back(key);
  return keys;
}

bool JsonValue::has(std::string_view key) const {
  expect(JsonKind::object, an_object);
  return document_->find(*node_, key) != nullptr;
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  expect(JsonKind::object, an_object);
  const Json* value = document_->find(*node_, key);
  if (value == nullptr) return std::nullopt;
  return JsonValue(document_, value, path_of(key));
}

JsonValue JsonValue::require(std::string_view key) const {
  std::optional<JsonValue> value = find(key);
  if (!value) fail_missing(key);
  return *std::move(value);
}

void JsonValue::refuse_keys_other_than(std::initializer_list<std::string_view> known) const {
  expect(JsonKind::object, an_object);
  for (const auto& [key, value] : node_->get_ref<const Json::object_t&>()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw_unsupported("{}: key {} is unknown to octet", file(), printable(path_of(key)));
  }
}

std::size_t JsonValue::size() const {
  expect(JsonKind::array, an_array);
  return node_->size();
}

JsonValue JsonValue::at(std::size_t index) const {
  if (index >= size()) {
    throw_bad_input("{} has {} elements, expected at least {}", where(), size(), index + 1);
  }
  return {document_, &(*node_)[index], fmt::format("{}[{}]", path_, index)};
}

template <typename T>
std::vector<T> JsonValue::as_list(T (JsonValue::*read)() const) const {
  expect(JsonKind::array, an_array);
  std::vector<T> values;
  values.reserve(node_->size());
  // An element's path may be long, and says something in an error alone.
  JsonValue element(document_, nullptr, "");
  for (std::size_t index = 0; index < node_->size(); ++index) {
    element.node_ = &(*node_)[index];
    try {
      values.push_back((element.*read)());
    } catch (const Error&) {
      (at(index).*read)();
      throw;
    }
  }
  return values;
}

bool JsonValue::as_bool() const {
  expect(JsonKind::boolean, a_bool);
  return node_->get<bool>();
}

std::int64_t JsonValue::as_integer() const {
  expect(JsonKind::integer, an_integer);
  if (node_->is_number_unsigned() && !std::in_range<std::int64_t>(node_->get<std::uint64_t>())) {
    throw_bad_input("{} is {}, expected {}", where(), node_->get<std::uint64_t>(), an_integer);
  }
  return node_->get<std::int64_t>();
}

std::uint64_t JsonValue::as_uint() const {
  expect(JsonKind::integer, an_unsigned);
  if (!node_->is_number_unsigned()) {
    throw_bad_input("{} is {}, expected {}", where(), node_->get<std::int64_t>(), an_unsigned);
  }
  return node_->get<std::uint64_t>();
}

double JsonValue::as_float() const {
  if (kind() != JsonKind::integer && kind() != JsonKind::number) fail_kind(a_number);
  return node_->get<double>();
}

std::string JsonValue::as_string() const {
  expect(JsonKind::string, a_string);
  return node_->get<std::string>();
}

std::vector<std::string> JsonValue::as_strings() const { return as_list(&JsonValue::as_string); }

std::vector<std::int64_t> JsonValue::as_integers() const { return as_list(&JsonValue::as_integer); }

std::vector<double> JsonValue::as_floats() const { return as_list(&JsonValue::as_float); }

std::optional<bool> JsonValue::find_bool(std::string_view key) const {
  return find_as(*this, key, &JsonValue::as_bool);
}
std::optional<std::int64_t> JsonValue::find_integer(std::string_view key) const {
  return find_as(*this, key, &JsonValue::as_integer);
}
std::optional<std::uint64_t> JsonValue::find_uint(std::string_view key) const {
  return find_as(*this, key, &JsonValue::as_uint);
}
std::optional<double> JsonValue::find_float(std::string_view key) const {
  return find_as(*this, key, &JsonValue::as_float);
}
std::optional<std::string> JsonValue::find_string(std::string_view key) const {
  return find_as(*this, key, &JsonValue::as_string);
}
std::optional<std::vector<std::string>> JsonValue::find_strings(std::string_view key) const {
  return find_as(*this, key, &JsonValue::as_strings);
}
std::optional<std::vector<std::int64_t>> JsonValue::find_integers(std::string_view key) const {
  return find_as(*this, key, &JsonValue::as_integers);
}
std::optional<std::vector<double>> JsonValue::find_floats(std::string_view key) const {
  return find_as(*this, key, &JsonValue::as_floats);
}

bool JsonValue::require_bool(std::string_view key) const { return require(key).as_bool(); }
std::int64_t JsonValue::require_integer(std::string_view key) const {
  return require(key).as_integer();
}
std::uint64_t JsonValue::require_uint(std::string_view key) const { return require(key).as_uint(); }
double JsonValue::require_float(std::string_view key) const { return require(key).as_float(); }
std::string JsonValue::require_string(std::string_view key) const {
  return require(key).as_string();
}

}  // namespace octet
