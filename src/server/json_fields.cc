#include "server/json_fields.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/printable.h"
#include "server/api_error.h"

namespace octet {

namespace {

// No request has as many fields; more would make looking each one up slow.
constexpr std::size_t most_fields = 200;

}  // namespace

void fail_field(const std::string& path, const std::string& message) {
  throw ApiError(400, message, path);
}

std::string describe_value(const Json& value) {
  switch (value.type()) {
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return fmt::format("an array of {}", value.size());
    case Json::value_t::string:
      return printable(value.get_ref<const std::string&>(), 40);
    default:
      return dump_json(value);
  }
}

std::optional<std::int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    // Up to 2^53 every integer is a double of its own.
    if (std::trunc(number) == number && std::abs(number) <= 9007199254740992.0) {
      return static_cast<std::int64_t>(number);
    }
  }
  return std::nullopt;
}

JsonFields::JsonFields(const Json& object, std::string where)
    : object_(&object), where_(std::move(where)) {
  const std::string name = where_.empty() ? "the request's body" : where_;
  if (!object.is_object()) {
    fail_field(where_, fmt::format("{} is {}, expected an object", name, describe_value(object)));
  }
  if (object.size() > most_fields) {
    fail_field(where_, fmt::format("{} has {} fields, expected at most {}", name, object.size(),
                                   most_fields));
  }
  taken_.resize(object.size());
}

std::string JsonFields::path(std::string_view name) const {
  return where_.empty() ? std::string(name) : fmt::format("{}.{}", where_, name);
}

void JsonFields::fail(std::string_view name, std::string_view expected) const {
  const auto found = object_->find(std::string(name));
  const std::string at = path(name);
  if (found == object_->end()) {
    fail_field(at, fmt::format("{} is missing, expected {}", at, expected));
  }
  fail_field(at, fmt::format("{} is {}, expected {}", at, describe_value(*found), expected));
}

const Json* JsonFields::find(std::string_view name) {
  const auto& fields = object_->get_ref<const Json::object_t&>();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const auto& [key, value] = *(fields.begin() + static_cast<std::ptrdiff_t>(i));
    if (key != name) continue;
    taken_[i] = true;
    return value.is_null() ? nullptr : &value;
  }
  return nullptr;
}

const Json& JsonFields::require(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) {
    fail_field(path(name), fmt::format("{} is missing", path(name)));
  }
  return *value;
}

std::optional<bool> JsonFields::boolean(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) fail(name, "true or false");
  return value->get<bool>();
}

std::optional<std::string> JsonFields::string(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(name, "a string");
  return value->get<std::string>();
}

std::string JsonFields::require_string(std::string_view name) {
  require(name);
  return *string(name);
}

std::optional<std::int64_t> JsonFields::integer(std::string_view name, std::int64_t low,
                                                std::int64_t high) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<std::int64_t> number = as_integer(*value);
  if (!number || *number < low || *number > high) {
    fail(name, high == INT64_MAX ? fmt::format("an integer of at least {}", low)
                                 : fmt::format("an integer from {} to {}", low, high));
  }
  return number;
}

std::optional<double> JsonFields::number(std::string_view name, double low, double high,
                                         bool above) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= low && number <= high) || (above && number == low)) {
    fail(name, above ? fmt::format("a number above {} and up to {}", low, high)
                     : fmt::format("a number from {} to {}", low, high));
  }
  return number;
}

void JsonFields::only(std::string_view name, const std::vector<Json>& neutral,
                      std::string_view expected) {
  const Json* value = find(name);
  if (value == nullptr || std::find(neutral.begin(), neutral.end(), *value) != neutral.end()) {
    return;
  }
  fail_field(path(name),
             fmt::format("{} is not supported here, expected {} or nothing", path(name), expected));
}

void JsonFields::finish() const {
  std::size_t i = 0;
  for (const auto& [key, value] : object_->items()) {
    if (!taken_[i++]) {
      const std::string at = where_.empty() ? key : where_ + "." + key;
      fail_field(single_line(at).substr(0, 200),
                 fmt::format("{} is a field that is not supported here", printable(at)));
    }
  }
}

}  // namespace octet
