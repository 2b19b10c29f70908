// A value inside tokenizer.json with its place, for reading big files by type with errors that name
// it. core/json_value.h does so for small configurations, where a string for each value costs
// nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"

namespace octet {

class JsonNode {
 public:
  JsonNode(const Json& json, std::string source) : json_(&json), path_(std::move(source)) {}

  const Json& json() const { return *json_; }
  // "tokenizer.json: pre_tokenizer.pretokenizers[0]", how an error about the value starts.
  const std::string& where() const { return path_; }

  // Of an object; a null counts as missing. Throw Error{bad_input} for other types than asked for.
  std::optional<JsonNode> find(std::string_view key) const;
  JsonNode require(std::string_view key) const;
  // The value of one of its keys, which the caller has found itself.
  JsonNode member(std::string_view key, const Json& value) const;
  std::optional<std::string> find_string(std::string_view key) const;
  std::string require_string(std::string_view key) const;
  bool flag(std::string_view key, bool missing = false) const;

  const Json::array_t& array() const;
  const Json::object_t& object() const;
  JsonNode item(std::size_t index) const;  // of an array

  [[noreturn]] void refuse(std::string_view reason) const;     // Error{bad_input}
  [[noreturn]] void refuse_type(std::string_view what) const;  // Error{unsupported}: names "type"

 private:
  const Json* json_;
  std::string path_;
};

}  // namespace octet
