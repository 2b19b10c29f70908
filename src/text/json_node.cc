#include "text/json_node.h"

#include "core/error.h"
#include "core/printable.h"

namespace octet {

const Json::object_t& JsonNode::object() const {
  if (!json_->is_object()) refuse("expected an object");
  return json_->get_ref<const Json::object_t&>();
}

const Json::array_t& JsonNode::array() const {
  if (!json_->is_array()) refuse("expected an array");
  return json_->get_ref<const Json::array_t&>();
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  for (const auto& [name, value] : object()) {
    if (name != key) continue;
    if (value.is_null()) return std::nullopt;
    return member(key, value);
  }
  return std::nullopt;
}

JsonNode JsonNode::member(std::string_view key, const Json& value) const {
  JsonNode node = *this;
  node.json_ = &value;
  node.path_ += path_.find(": ") == std::string::npos ? ": " : ".";
  node.path_ += key;
  return node;
}

JsonNode JsonNode::require(std::string_view key) const {
  auto found = find(key);
  if (!found) throw_bad_input("{}: the key '{}' is missing", path_, key);
  return std::move(*found);
}

std::optional<std::string> JsonNode::find_string(std::string_view key) const {
  const auto found = find(key);
  if (!found) return std::nullopt;
  if (!found->json_->is_string()) found->refuse("expected a string");
  return found->json_->get<std::string>();
}

std::string JsonNode::require_string(std::string_view key) const {
  require(key);
  return *find_string(key);
}

bool JsonNode::flag(std::string_view key, bool missing) const {
  const auto found = find(key);
  if (!found) return missing;
  if (!found->json_->is_boolean()) found->refuse("expected true or false");
  return found->json_->get<bool>();
}

JsonNode JsonNode::item(std::size_t index) const {
  JsonNode node = *this;
  node.json_ = &array().at(index);
  node.path_ += fmt::format("[{}]", index);
  return node;
}

void JsonNode::refuse(std::string_view reason) const { throw_bad_input("{}: {}", path_, reason); }

void JsonNode::refuse_type(std::string_view what) const {
  throw_unsupported("{}: octet does not know {} {}", path_, what,
                    printable(require_string("type")));
}

}  // namespace octet
