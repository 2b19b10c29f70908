// A parsed JSON text whose values are read by key and type, with errors that name file and key.
// What configuration files are read through; core/json.h is for building and dumping JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace octet {

enum class JsonKind { null, boolean, integer, number, string, array, object };

// A value inside a parsed text, which it keeps alive; cheap to copy. Every error is an
// Error{bad_input} whose sentence starts with the file and names the value's key with all keys
// above it: "m/config.json: key 'rope_scaling.factor' holds a string, expected a number".
class JsonValue {
 public:
  // The whole of `text`, within the default limits of parse_json (core/json.h). `file` names it in
  // errors.
  static JsonValue parse(std::string_view text, const std::string& file);

  const std::string& file() const;
  // "m/config.json: key 'rope_scaling.factor'", or the file alone for the whole text: how a
  // reader's own errors about the value start.
  std::string where() const;

  // `integer` is a number without fraction and exponent.
  JsonKind kind() const;

  // Of an object. A key whose value is null counts as missing everywhere but in keys(): writers of
  // configurations mean "not given" by it.
  std::vector<std::string> keys() const;  // in the text's order
  bool has(std::string_view key) const;
  std::optional<JsonValue> find(std::string_view key) const;
  JsonValue require(std::string_view key) const;
  // Throws Error{unsupported} that names the first key, null or not, that is none of `known`.
  void refuse_keys_other_than(std::initializer_list<std::string_view> known) const;

  // Of an array.
  std::size_t size() const;
  JsonValue at(std::size_t index) const;

  // The value itself, which must be of the type. as_float takes integers too.
  bool as_bool() const;
  std::int64_t as_integer() const;
  std::uint64_t as_uint() const;
  double as_float() const;
  std::string as_string() const;
  std::vector<std::string> as_strings() const;
  std::vector<std::int64_t> as_integers() const;
  std::vector<double> as_floats() const;

  // Of an object: nothing where the key is missing or null.
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<std::int64_t> find_integer(std::string_view key) const;
  std::optional<std::uint64_t> find_uint(std::string_view key) const;
  std::optional<double> find_float(std::string_view key) const;
  std::optional<std::string> find_string(std::string_view key) const;
  std::optional<std::vector<std::string>> find_strings(std::string_view key) const;
  std::optional<std::vector<std::int64_t>> find_integers(std::string_view key) const;
  std::optional<std::vector<double>> find_floats(std::string_view key) const;

  // The same, but a missing key is an error.
  bool require_bool(std::string_view key) const;
  std::int64_t require_integer(std::string_view key) const;
  std::uint64_t require_uint(std::string_view key) const;
  double require_float(std::string_view key) const;
  std::string require_string(std::string_view key) const;

 private:
  struct Document;
  JsonValue(std::shared_ptr<const Document> document, const nlohmann::ordered_json* node,
            std::string path);

  [[noreturn]] void fail_kind(std::string_view expected) const;
  [[noreturn]] void fail_missing(std::string_view key) const;
  void expect(JsonKind kind, std::string_view what) const;
  template <typename T>
  std::vector<T> as_list(T (JsonValue::*read)() const) const;
  std::string path_of(std::string_view key) const;

  std::shared_ptr<const Document> document_;
  const nlohmann::ordered_json* node_;
  std::string path_;  // keys and indices from the root: "text_config.layer_types[3]"
};

}  // namespace octet
