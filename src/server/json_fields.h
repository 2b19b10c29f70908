// Reads an object of a request strictly: every field is asked for by name, and what is left over is
// refused by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace octet {

// All throw ApiError{400} that names the field. A field that is null counts as missing, as in
// OpenAI's API.
class JsonFields {
 public:
  // `where` is the object's place in the request: "" for the whole, "messages[2]" inside.
  JsonFields(const Json& object, std::string where);

  const Json* find(std::string_view name);
  const Json& require(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  std::optional<std::string> string(std::string_view name);
  std::string require_string(std::string_view name);
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t low, std::int64_t high);
  // In [low, high], or in (low, high] where `above`.
  std::optional<double> number(std::string_view name, double low, double high, bool above = false);

  // Takes a field that may only have a value that asks for nothing: false, null, {} or the like.
  void only(std::string_view name, const std::vector<Json>& neutral, std::string_view expected);

  // Refuses every field that was not asked for.
  void finish() const;

  // "stream_options.include_usage"
  std::string path(std::string_view name) const;
  [[noreturn]] void fail(std::string_view name, std::string_view expected) const;

 private:
  const Json* object_;
  std::string where_;
  std::vector<bool> taken_;  // by index in the object
};

// The integer that `value` is, if it is one: 3 and 3.0, but not 3.5, "3" or 1e300.
std::optional<std::int64_t> as_integer(const Json& value);

// A short account of a value for an error: its type, or itself where it is small.
std::string describe_value(const Json& value);

[[noreturn]] void fail_field(const std::string& path, const std::string& message);

}  // namespace octet
