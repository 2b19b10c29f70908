// Methods of strings. What a method of Markup gives is Markup: see call_method().
#include <algorithm>
#include <optional>

#include "core/error.h"
#include "text/jinja/access.h"
#include "text/jinja/builtins.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/letter_case.h"
#include "text/jinja/text_operations.h"
#include "text/jinja/unicode.h"

namespace octet::jinja {
namespace {

bool is_given(const Value* argument) { return argument != nullptr && !argument->is_none(); }

// A string that goes into `object`: escaped if that is Markup and the string is not.
Value escaped_for(Runtime& runtime, const Value& object, std::string_view callee,
                  const Value& value) {
  const MarkedText& text = text_argument(callee, value);
  if (!object.is_markup() || value.is_markup()) return value;
  return escape(runtime.budget, text);
}

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
Value text_has_case(Runtime& runtime, const Value& object, const Arguments& arguments) {
  arguments.bind("a method of letter case", {});
  return Value::boolean(has_case(runtime.budget, *object.text(), letter_case));
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
  const Value replacement = escaped_for(runtime, object, "replace()", *bound[1]);
  return replace(runtime.budget, *object.text(), text_argument("replace()", *bound[0]),
                 *replacement.text(), count);
}

// Offsets of the part that the arguments `start` and `end` of a search leave: of characters, as
// slices count them.
struct SearchRange {
  std::string_view text;
  std::int64_t begin;  // characters before it
};
// Nothing where `start` lies past the end, where not even the empty string is found.
std::optional<SearchRange> search_range(Runtime& runtime, const MarkedText& text,
                                        const Value* start, const Value* end) {
  const std::string_view bytes = text.bytes();
  if (!is_given(start) && !is_given(end)) return SearchRange{bytes, 0};
  runtime.budget.work(bytes.size());
  const auto length = static_cast<std::int64_t>(count_characters(bytes));
  const auto resolve = [length](const Value* bound, std::int64_t missing) {
    if (!is_given(bound)) return missing;
    const std::int64_t index = integer_argument("a search's range", *bound);
    return index < 0 ? std::max<std::int64_t>(index + length, 0) : index;
  };
  const std::int64_t from = resolve(start, 0);
  const std::int64_t to = std::min(resolve(end, length), length);
  if (from > to) return std::nullopt;
  const std::size_t first = offset_of_character(bytes, static_cast<std::size_t>(from));
  const std::size_t size =
      offset_of_character(bytes.substr(first), static_cast<std::size_t>(to - from));
  return SearchRange{bytes.substr(first, size), from};
}

template <bool from_right, bool must_exist>
Value text_find(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("find()", {"sub", "start", "end"}, 1);
  const std::string_view part = text_argument("find()", *bound[0]).bytes();
  const auto range = search_range(runtime, *object.text(), bound[1], bound[2]);
  std::optional<std::size_t> found;
  if (range) {
    found = from_right ? find_last(runtime.budget, range->text, part)
                       : find(runtime.budget, range->text, part);
  }
  if (!found && must_exist) throw_bad_input("index() did not find its substring");
  if (!found) return Value::integer(-1);
  const std::size_t characters = count_characters(range->text.substr(0, *found));
  return Value::integer(range->begin + static_cast<std::int64_t>(characters));
}

Value text_count(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("count()", {"sub", "start", "end"}, 1);
  const std::string_view part = text_argument("count()", *bound[0]).bytes();
  const auto range = search_range(runtime, *object.text(), bound[1], bound[2]);
  if (!range) return Value::integer(0);
  if (part.empty()) {
    return Value::integer(static_cast<std::int64_t>(count_characters(range->text)) + 1);
  }
  std::int64_t count = 0;
  std::size_t begin = 0;
  while (const std::optional<std::size_t> found = find(runtime.budget, range->text, part, begin)) {
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
    out.append(*escaped_for(runtime, object, "join()", item).text());
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

template <std::uint32_t flags, bool of_empty>
Value text_all(Runtime& runtime, const Value& object, const Arguments& arguments) {
  arguments.bind("a test of characters", {});
  const std::string& bytes = object.text()->bytes();
  runtime.budget.work(table_look_up_work * bytes.size());
  for (std::size_t i = 0; i < bytes.size(); i += character_bytes(bytes[i])) {
    if (!has_flag(decode_at(bytes, i), static_cast<CharacterFlag>(flags))) {
      return Value::boolean(false);
    }
  }
  return Value::boolean(of_empty || !bytes.empty());
}
constexpr auto alpha = static_cast<std::uint32_t>(CharacterFlag::alpha);
constexpr auto decimal = static_cast<std::uint32_t>(CharacterFlag::decimal);
constexpr auto digit = static_cast<std::uint32_t>(CharacterFlag::digit);
constexpr auto numeric = static_cast<std::uint32_t>(CharacterFlag::numeric);
constexpr auto printing = static_cast<std::uint32_t>(CharacterFlag::printable);

Value text_is_ascii(Runtime& runtime, const Value& object, const Arguments& arguments) {
  arguments.bind("isascii()", {});
  const std::string& bytes = object.text()->bytes();
  runtime.budget.work(bytes.size());
  return Value::boolean(std::all_of(bytes.begin(), bytes.end(),
                                    [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

Value text_is_space(Runtime& runtime, const Value& object, const Arguments& arguments) {
  arguments.bind("isspace()", {});
  const std::string& bytes = object.text()->bytes();
  runtime.budget.work(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); i += character_bytes(bytes[i])) {
    if (!is_python_space(decode_at(bytes, i))) return Value::boolean(false);
  }
  return Value::boolean(!bytes.empty());
}

template <Sides sides>
Value text_pad(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("center(), ljust() and rjust()", {"width", "fillchar"}, 1);
  Value fill = runtime.budget.string(" ");
  if (bound[1] != nullptr) fill = escaped_for(runtime, object, "center()", *bound[1]);
  return pad(runtime.budget, *object.text(), integer_argument("center()", *bound[0]), *fill.text(),
             sides);
}

Value text_zero_fill(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("zfill()", {"width"}, 1);
  const MarkedText& text = *object.text();
  const bool has_sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+');
  const std::int64_t width = integer_argument("zfill()", *bound[0]);
  const Value digits = pad(runtime.budget, text.slice(has_sign ? 1 : 0, text.size()),
                           has_sign ? std::max<std::int64_t>(width, 1) - 1 : width,
                           MarkedText("0", false), Sides::left);
  TextBuilder out(runtime.budget);
  out.append_slice(text, 0, has_sign ? 1 : 0);
  out.append(*digits.text());
  return out.finish();
}

Value text_expand_tabs(Runtime& runtime, const Value& object, const Arguments& arguments) {
  const auto bound = arguments.bind("expandtabs()", {"tabsize"});
  const std::int64_t size = bound[0] == nullptr ? 8 : integer_argument("expandtabs()", *bound[0]);
  if (size > static_cast<std::int64_t>(max_string_bytes)) {
    throw_bad_input("expandtabs() cannot take tabs of {} columns", size);
  }
  const MarkedText& text = *object.text();
  TextBuilder out(runtime.budget);
  std::int64_t column = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = character_bytes(text.bytes()[i]);
    const char c = text.bytes()[i];
    if (c == '\t') {
      const std::int64_t spaces = size <= 0 ? 0 : size - column % size;
      out.append(std::string(static_cast<std::size_t>(spaces), ' '), text.is_literal_at(i));
      column += spaces;
    } else {
      out.append_slice(text, i, i + length);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    i += length;
  }
  return out.finish();
}

Value text_format(Runtime& runtime, const Value& object, const Arguments& arguments) {
  return brace_format(runtime, object, arguments);
}

constexpr BuiltinMethod string_methods[] = {
    {"capitalize", text_change_case<LetterCase::capitalized>},
    {"casefold", text_change_case<LetterCase::folded>},
    {"center", text_pad<Sides::both>},
    {"count", text_count},
    {"encode", nullptr},
    {"endswith", text_has_affix<false>},
    {"expandtabs", text_expand_tabs},
    {"find", text_find<false, false>},
    {"format", text_format},
    {"format_map", nullptr},
    {"index", text_find<false, true>},
    {"isalnum", text_all<alpha | decimal | digit | numeric, false>},
    {"isalpha", text_all<alpha, false>},
    {"isascii", text_is_ascii},
    {"isdecimal", text_all<decimal, false>},
    {"isdigit", text_all<digit, false>},
    {"isidentifier", nullptr},
    {"islower", text_has_case<LetterCase::lower>},
    {"isnumeric", text_all<numeric, false>},
    {"isprintable", text_all<printing, true>},
    {"isspace", text_is_space},
    {"istitle", text_has_case<LetterCase::titled>},
    {"isupper", text_has_case<LetterCase::upper>},
    {"join", text_join},
    {"ljust", text_pad<Sides::right>},
    {"lower", text_change_case<LetterCase::lower>},
    {"lstrip", text_strip<Sides::left>},
    {"maketrans", nullptr},
    {"partition", text_partition<false>},
    {"removeprefix", text_remove_affix<true>},
    {"removesuffix", text_remove_affix<false>},
    {"replace", text_replace},
    {"rfind", text_find<true, false>},
    {"rindex", text_find<true, true>},
    {"rjust", text_pad<Sides::left>},
    {"rpartition", text_partition<true>},
    {"rsplit", text_split<true>},
    {"rstrip", text_strip<Sides::right>},
    {"split", text_split<false>},
    {"splitlines", text_split_lines},
    {"startswith", text_has_affix<true>},
    {"strip", text_strip<Sides::both>},
    {"swapcase", text_change_case<LetterCase::swapped>},
    {"title", text_change_case<LetterCase::titled>},
    {"translate", nullptr},
    {"upper", text_change_case<LetterCase::upper>},
    {"zfill", text_zero_fill},
};

}  // namespace

const BuiltinMethod* find_string_method(std::string_view name) {
  return find_by_name(string_methods, name);
}

Value call_method(Runtime& runtime, const Value& object, const BuiltinMethod& method,
                  const Arguments& arguments) {
  const Value result = method.apply(runtime, object, arguments);
  if (!object.is_markup()) return result;
  const auto as_markup = [&runtime](const Value& value) {
    return value.text() == nullptr ? value : runtime.budget.string(*value.text(), true);
  };
  const ListObject* list = result.as_list();
  if (list == nullptr) return as_markup(result);
  std::vector<Value> parts;
  for (const Value& part : list->items) runtime.budget.push(parts, as_markup(part));
  return runtime.budget.list(std::move(parts), list->kind);
}

}  // namespace octet::jinja
