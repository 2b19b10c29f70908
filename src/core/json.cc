#include "core/json.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/printable.h"

namespace octet {

namespace {

// Builds a value from the parser's events. It replaces nlohmann's own builder, which takes any
// depth, lets a repeated key overwrite the first, and looks through the whole of an ordered object
// for each key it adds. The parser itself keeps its stack on the heap.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view what, const JsonLimits& limits) : what_(what), limits_(limits) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON text has none

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool key(string_t& name) override {
    // The object's base class is a vector; its own insertion searches for the key first.
    object_on_top().push_back({std::move(name), Json()});
    return true;
  }
  bool end_object() override {
    refuse_repeated_key(object_on_top());
    open_.pop_back();
    return true;
  }
  bool end_array() override {
    open_.pop_back();
    return true;
  }

  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::detail::exception& error) override {
    throw_bad_input("{}: is not valid JSON: {} at byte {}, near {}", what_, reason_of(error),
                    position, printable(last_token, 40));
  }

 private:
  Json::object_t& object_on_top() { return open_.back()->get_ref<Json::object_t&>(); }

  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing
  // value - invalid literal; last read: 'N'" is told as "syntax error while parsing value - invalid
  // literal": the token may be as long as the text.
  static std::string reason_of(const nlohmann::detail::exception& error) {
    std::string_view text = error.what();
    if (dynamic_cast<const nlohmann::detail::out_of_range*>(&error) != nullptr) {
      return "a number exceeds the range of a double";
    }
    if (const auto start = text.find("syntax error"); start != text.npos) text.remove_prefix(start);
    return std::string(text.substr(0, text.find("; last read")));
  }

  void refuse_repeated_key(const Json::object_t& object) const {
    std::vector<std::string_view> keys;
    keys.reserve(object.size());
    for (const auto& [key, value] : object) keys.emplace_back(key);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) {
      throw_bad_input("{}: has the key {} twice in one object, expected it once", what_,
                      printable(*twice));
    }
  }

  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    Json& slot = object_on_top().back().second;
    slot = std::move(value);
    return &slot;
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (open_.size() >= static_cast<std::size_t>(limits_.max_depth)) {
      throw_bad_input("{}: nests arrays and objects deeper than {}", what_, limits_.max_depth);
    }
    open_.push_back(place(std::move(value)));
    return true;
  }

  std::string_view what_;
  const JsonLimits& limits_;
  Json root_;
  // The containers that are not closed yet, outermost first. Each is the last element of the one
  // before, which does not grow, and so does not move it, until it is closed.
  std::vector<Json*> open_;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view what, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    throw_bad_input("{}: has {} bytes of JSON, expected at most {}", what, text.size(),
                    limits.max_bytes);
  }
  if (!is_valid_utf8(text)) throw_bad_input("{}: is not valid UTF-8, expected JSON", what);
  Builder builder(what, limits);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

std::string dump_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace octet
