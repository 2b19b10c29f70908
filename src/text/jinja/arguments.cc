#include "core/error.h"
#include "text/jinja/builtins.h"

namespace octet::jinja {

const Value* Arguments::find_keyword(std::string_view name) const {
  for (const auto& [keyword, value] : keywords) {
    if (keyword == name) return &value;
  }
  return nullptr;
}

std::vector<const Value*> Arguments::bind(std::string_view callee,
                                          std::initializer_list<std::string_view> parameters,
                                          std::size_t required) const {
  if (positional.size() > parameters.size()) {
    throw_bad_input("{} takes at most {} arguments, not {}", callee, parameters.size(),
                    positional.size());
  }
  std::vector<const Value*> bound(parameters.size(), nullptr);
  for (std::size_t i = 0; i < positional.size(); ++i) bound[i] = &positional[i];
  for (const auto& [keyword, value] : keywords) {
    std::size_t i = 0;
    for (const std::string_view parameter : parameters) {
      if (parameter == keyword) break;
      ++i;
    }
    if (i == bound.size()) throw_bad_input("{} has no argument '{}'", callee, keyword);
    if (bound[i] != nullptr) throw_bad_input("{} got its argument '{}' twice", callee, keyword);
    bound[i] = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) {
      throw_bad_input("{} needs its argument '{}'", callee, *(parameters.begin() + i));
    }
  }
  return bound;
}

std::int64_t integer_argument(std::string_view callee, const Value& value) {
  const std::optional<std::int64_t> integer = value.as_integer();
  if (!integer) throw_bad_input("{} needs an integer, not a {}", callee, value.type_name());
  return *integer;
}

const MarkedText& text_argument(std::string_view callee, const Value& value) {
  if (const Undefined* undefined = value.get_if<Undefined>()) throw_undefined(*undefined);
  const MarkedText* text = value.text();
  if (text == nullptr) throw_bad_input("{} needs a string, not a {}", callee, value.type_name());
  return *text;
}

}  // namespace octet::jinja
