// Variables for templates from JSON, for tests.
#pragma once

#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "text/jinja/interpreter.h"

namespace octet::jinja {

inline Value to_value(const Json& json, bool literal = false) {
  if (json.is_boolean()) return Value::boolean(json.get<bool>());
  if (json.is_number_integer()) return Value::integer(json.get<std::int64_t>());
  if (json.is_number()) return Value::floating(json.get<double>());
  if (json.is_string()) return Value::string(json.get<std::string>(), literal);
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto& item : json) items.push_back(to_value(item, literal));
    return Value::list(std::move(items));
  }
  if (json.is_object()) {
    std::vector<DictEntry> entries;
    for (const auto& [key, value] : json.items()) {
      entries.emplace_back(Value::string(key, literal), to_value(value, literal));
    }
    return Value::dict(std::move(entries));
  }
  return Value::none();
}

inline Variables to_variables(const Json& json, bool literal = false) {
  Variables variables;
  for (const auto& [name, value] : json.items()) {
    variables.emplace_back(name, to_value(value, literal));
  }
  return variables;
}

// The clock of the cases: Sunday, 9 March 2025, 14:05:07.
inline std::tm case_time() {
  std::tm time{};
  time.tm_year = 125;
  time.tm_mon = 2;
  time.tm_mday = 9;
  time.tm_wday = 0;
  time.tm_yday = 67;
  time.tm_hour = 14;
  time.tm_min = 5;
  time.tm_sec = 7;
  return time;
}

}  // namespace octet::jinja
