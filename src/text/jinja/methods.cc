// Methods of strings, lists, dicts and loops.
#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "text/jinja/access.h"
#include "text/jinja/builtins.h"
#include "text/jinja/format.h"
#include "text/jinja/text_operations.h"
#include "text/jinja/unicode.h"

namespace octet::jinja {
namespace {

bool is_given(const Value* argument) { return argument != nullptr && !argument->is_none(); }

template <Sides sides>
Value text_strip(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("strip()", {"chars"});
  const MarkedText* characters =
      is_given(bound[0]) ? &text_argument("strip()", *bound[0]) : nullptr;
  return strip(runtime.budget, *object.text(), characters, sides);
}

template <LetterCase letter_case>
Value text_change_case(Runtime& runtime, const Value& object, const Arguments& arguments) {
  arguments.bind("a method of letter case", {});
  return change_case(runtime.budget, *object.text(), letter_case);
}

template <LetterCase letter_case>
Value text_has_case(Runtime&, const Value& object, const Arguments& arguments) {
  arguments.bind("a method of letter case", {});
  return Value::boolean(has_case(*object.text(), letter_case));
}

template <bool from_right>
Value text_split(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("split()", {"sep", "maxsplit"});
  const MarkedText* separator = is_given(bound[0]) ? &text_argument("split()", *bound[0]) : nullptr;
  const std::int64_t limit = bound[1] == nullptr ? -1 : integer_argument("split()", *bound[1]);
  return from_right ? split_from_right(runtime.budget, *object.text(), separator, limit)
                    : split(runtime.budget, *object.text(), separator, limit);
}

Value text_split_lines(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("splitlines()", {"keepends"});
  const bool keeps_ends = bound[0] != nullptr && is_true(*bound[0]);
  return split_lines(runtime.budget, *object.text(), keeps_ends);
}

// startswith and endswith take one affix or a tuple of them.
template <bool at_start>
Value text_has_affix(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const char* callee = at_start ? "startswith()" : "endswith()";
  const auto bound = arguments.bind(callee, {"affix", "start", "end"}, 1);
  Value slice = object;
  if (bound[1] != nullptr || bound[2] != nullptr) {
    slice =
        get_slice(object, bound[1] == nullptr ? Value::none() : *bound[1],
                  bound[2] == nullptr ? Value::none() : *bound[2], Value::none(), runtime.budget);
  }
  const std::string_view text = slice.text()->bytes();
  const auto matches = [&](const Value& value) {
    const std::string_view affix = text_argument(callee, value).bytes();
    runtime.budget.work(affix.size());
    if (affix.size() > text.size()) return false;
    return text.substr(at_start ? 0 : text.size() - affix.size(), affix.size()) == affix;
  };
  const ListObject* affixes = bound[0]->as_list();
  if (affixes == nullptr || affixes->kind != ListKind::tuple) {
    return Value::boolean(matches(*bound[0]));
  }
  return Value::boolean(std::any_of(affixes->items.begin(), affixes->items.end(), matches));
}

template <bool is_prefix>
Value text_remove_affix(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("removeprefix() and removesuffix()", {"affix"}, 1);
  const std::string_view affix = text_argument("removeprefix()", *bound[0]).bytes();
  const MarkedText& text = *object.text();
  if (affix.size() > text.size()) return object;
  const std::size_t rest = text.size() - affix.size();
  const std::string_view bytes = text.bytes();
  if (bytes.substr(is_prefix ? 0 : rest, affix.size()) != affix) return object;
  return runtime.budget.string(is_prefix ? text.slice(affix.size(), text.size())
                                         : text.slice(0, rest));
}

Value text_replace(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("replace()", {"old", "new", "count"}, 2);
  const std::int64_t count = bound[2] == nullptr ? -1 : integer_argument("replace()", *bound[2]);
  return replace(runtime.budget, *object.text(), text_argument("replace()", *bound[0]),
                 text_argument("replace()", *bound[1]), count);
}

template <bool from_right, bool must_exist>
Value text_find(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("find()", {"sub"}, 1);
  const std::string_view part = text_argument("find()", *bound[0]).bytes();
  const std::string_view text = object.text()->bytes();
  const std::optional<std::size_t> found =
      from_right ? find_last(runtime.budget, text, part) : find(runtime.budget, text, part);
  if (!found && must_exist) throw_bad_input("index() did not find its substring");
  if (!found) return Value::integer(-1);
  return Value::integer(static_cast<std::int64_t>(count_characters(text.substr(0, *found))));
}

Value text_count(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("count()", {"sub"}, 1);
  const std::string_view part = text_argument("count()", *bound[0]).bytes();
  const std::string_view text = object.text()->bytes();
  if (part.empty()) return Value::integer(static_cast<std::int64_t>(count_characters(text)) + 1);
  std::int64_t count = 0;
  std::size_t begin = 0;
  while (const std::optional<std::size_t> found = find(runtime.budget, text, part, begin)) {
    ++count;
    begin = *found + part.size();
  }
  return Value::integer(count);
}

Value text_join(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("join()", {"iterable"}, 1);
  TextBuilder out(runtime.budget);
  bool is_first = true;
  for (const Value& item : items_of(*bound[0], runtime.budget)) {
    if (!is_first) out.append(*object.text());
    is_first = false;
    out.append(text_argument("join()", item));
  }
  return out.finish();
}

template <bool from_right>
Value text_partition(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("partition()", {"sep"}, 1);
  const MarkedText& text = *object.text();
  const MarkedText& separator = text_argument("partition()", *bound[0]);
  if (separator.empty()) throw_bad_input("partition() needs a separator that is not empty");
  const std::optional<std::size_t> found =
      from_right ? find_last(runtime.budget, text.bytes(), separator.bytes())
                 : find(runtime.budget, text.bytes(), separator.bytes());
  const Value nothing = runtime.budget.string("");
  if (!found) {
    std::vector<Value> parts = {object, nothing, nothing};
    if (from_right) std::swap(parts[0], parts[2]);
    return runtime.budget.list(std::move(parts), ListKind::tuple);
  }
  return runtime.budget.list(
      {runtime.budget.string(text.slice(0, *found)), *bound[0],
       runtime.budget.string(text.slice(*found + separator.size(), text.size()))},
      ListKind::tuple);
}

// str.isdigit and its like, for ASCII; other characters would need the Unicode database.
template <bool (*holds)(unsigned char)>
Value text_all(Runtime&, const Value& object, const Arguments& arguments) {
  arguments.bind("a test of characters", {});
  const std::string& bytes = object.text()->bytes();
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) throw_unsupported("testing characters beyond ASCII is not supported");
    if (!holds(byte)) return Value::boolean(false);
  }
  return Value::boolean(!bytes.empty());
}
bool is_digit(unsigned char c) { return c >= '0' && c <= '9'; }
bool is_letter(unsigned char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }
bool is_letter_or_digit(unsigned char c) { return is_digit(c) || is_letter(c); }

Value text_is_space(Runtime&, const Value& object, const Arguments& arguments) {
  arguments.bind("isspace()", {});
  const std::string& bytes = object.text()->bytes();
  for (std::size_t i = 0; i < bytes.size(); i += character_bytes(bytes[i])) {
    if (!is_python_space(decode_at(bytes, i))) return Value::boolean(false);
  }
  return Value::boolean(!bytes.empty());
}

// What a replacement field of str.format() names: the next argument, one by number or one by name.
const Value& format_argument(std::string_view field, std::size_t& next,
                             const Arguments& arguments) {
  if (field.find_first_of(".[:!{") != std::string_view::npos) {
    throw_unsupported("format() with more than a number or a name in its braces is not supported");
  }
  if (const Value* keyword = field.empty() ? nullptr : arguments.find_keyword(field)) {
    return *keyword;
  }
  std::size_t index = next;
  if (field.empty()) {
    ++next;
  } else {
    const char* end = field.data() + field.size();
    const auto result = std::from_chars(field.data(), end, index);
    if (result.ptr != end || result.ec != std::errc()) index = arguments.positional.size();
  }
  if (index >= arguments.positional.size()) throw_bad_input("format() lacks one of its arguments");
  return arguments.positional[index];
}

Value text_format(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const MarkedText& text = *object.text();
  const std::string_view bytes = text.bytes();
  TextBuilder out(runtime.budget);
  std::size_t next = 0;
  std::size_t copied = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '{' && bytes[i] != '}') continue;
    out.append_slice(text, copied, i);
    if (i + 1 < bytes.size() && bytes[i + 1] == bytes[i]) {  // doubled: itself
      copied = ++i;
      continue;
    }
    const std::size_t end = bytes.find('}', i);
    if (bytes[i] == '}' || end == std::string_view::npos) {
      throw_bad_input("format() met a brace without its pair");
    }
    append_str(out, format_argument(bytes.substr(i + 1, end - i - 1), next, arguments));
    i = end;
    copied = end + 1;
  }
  out.append_slice(text, copied, bytes.size());
  return out.finish();
}

constexpr BuiltinMethod string_methods[] = {
    {"capitalize", text_change_case<LetterCase::capitalized>},
    {"casefold", nullptr},
    {"center", nullptr},
    {"count", text_count},
    {"encode", nullptr},
    {"endswith", text_has_affix<false>},
    {"expandtabs", nullptr},
    {"find", text_find<false, false>},
    {"format", text_format},
    {"format_map", nullptr},
    {"index", text_find<false, true>},
    {"isalnum", text_all<is_letter_or_digit>},
    {"isalpha", text_all<is_letter>},
    {"isascii", nullptr},
    {"isdecimal", text_all<is_digit>},
    {"isdigit", text_all<is_digit>},
    {"isidentifier", nullptr},
    {"islower", text_has_case<LetterCase::lower>},
    {"isnumeric", text_all<is_digit>},
    {"isprintable", nullptr},
    {"isspace", text_is_space},
    {"istitle", nullptr},
    {"isupper", text_has_case<LetterCase::upper>},
    {"join", text_join},
    {"ljust", nullptr},
    {"lower", text_change_case<LetterCase::lower>},
    {"lstrip", text_strip<Sides::left>},
    {"maketrans", nullptr},
    {"partition", text_partition<false>},
    {"removeprefix", text_remove_affix<true>},
    {"removesuffix", text_remove_affix<false>},
    {"replace", text_replace},
    {"rfind", text_find<true, false>},
    {"rindex", text_find<true, true>},
    {"rjust", nullptr},
    {"rpartition", text_partition<true>},
    {"rsplit", text_split<true>},
    {"rstrip", text_strip<Sides::right>},
    {"split", text_split<false>},
    {"splitlines", text_split_lines},
    {"startswith", text_has_affix<true>},
    {"strip", text_strip<Sides::both>},
    {"swapcase", nullptr},
    {"title", text_change_case<LetterCase::titled>},
    {"translate", nullptr},
    {"upper", text_change_case<LetterCase::upper>},
    {"zfill", nullptr},
};

Value list_index(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("index()", {"value"}, 1);
  const std::vector<Value>& items = object.as_list()->items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (equal(items[i], *bound[0], runtime.budget)) {
      return Value::integer(static_cast<std::int64_t>(i));
    }
  }
  throw_bad_input("index() did not find its value in the list");
}

Value list_count(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("count()", {"value"}, 1);
  const std::vector<Value>& items = object.as_list()->items;
  const auto count = std::count_if(items.begin(), items.end(), [&](const Value& item) {
    return equal(item, *bound[0], runtime.budget);
  });
  return Value::integer(count);
}

constexpr BuiltinMethod list_methods[] = {
    {"copy", nullptr},
    {"count", list_count},
    {"index", list_index},
};

Value dict_get(Runtime&, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("get()", {"key", "default"}, 1);
  if (const Value* entry = object.as_dict()->find(*bound[0])) return *entry;
  return bound[1] == nullptr ? Value::none() : *bound[1];
}

template <ListKind kind>
Value dict_view(Runtime& runtime, const Value& object, const Arguments& arguments) {
  arguments.bind("keys(), values() or items()", {});
  std::vector<Value> items;
  for (const auto& [key, value] : object.as_dict()->entries()) {
    if (kind == ListKind::dict_items) {
      runtime.budget.push(items, runtime.budget.list({key, value}, ListKind::tuple));
    } else {
      runtime.budget.push(items, kind == ListKind::dict_keys ? key : value);
    }
  }
  return runtime.budget.list(std::move(items), kind);
}

Value dict_copy(Runtime&, const Value& object, const Arguments& arguments) {
  arguments.bind("copy()", {});
  return object;
}

constexpr BuiltinMethod dict_methods[] = {
    {"copy", dict_copy},
    {"fromkeys", nullptr},
    {"get", dict_get},
    {"items", dict_view<ListKind::dict_items>},
    {"keys", dict_view<ListKind::dict_keys>},
    {"values", dict_view<ListKind::dict_values>},
};

Value loop_cycle(Runtime&, const Value& object, const Arguments& arguments) {
  const std::vector<Value>& values = arguments.positional;
  if (values.empty() || !arguments.keywords.empty()) {
    throw_bad_input("loop.cycle() needs values to go through");
  }
  return values[(*object.get_if<LoopPointer>())->index % values.size()];
}

constexpr BuiltinMethod loop_methods[] = {{"cycle", loop_cycle}};

}  // namespace

const BuiltinMethod* find_string_method(std::string_view name) {
  return find_by_name(string_methods, name);
}
const BuiltinMethod* find_list_method(std::string_view name) {
  return find_by_name(list_methods, name);
}
const BuiltinMethod* find_dict_method(std::string_view name) {
  return find_by_name(dict_methods, name);
}
const BuiltinMethod* find_loop_method(std::string_view name) {
  return find_by_name(loop_methods, name);
}

}  // namespace octet::jinja
