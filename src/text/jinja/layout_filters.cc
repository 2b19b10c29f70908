// Filters that lay text out for a reader, or for HTML and URLs.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "text/jinja/builtins.h"
#include "text/jinja/format.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/letter_case.h"
#include "text/jinja/text_operations.h"
#include "text/jinja/unicode.h"

namespace octet::jinja {
namespace {

bool is_given(const Value* argument) { return argument != nullptr && !argument->is_none(); }

Value filter_center(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("center", {"width"});
  const std::int64_t width = bound[0] == nullptr ? 80 : integer_argument("center", *bound[0]);
  const Value text = to_str(runtime.budget, input);
  return pad(runtime.budget, *text.text(), width, MarkedText(" ", false), Sides::both);
}

// Text % arguments, or % the named ones.
Value filter_format(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Value text = to_str(runtime.budget, input);
  if (!arguments.keywords.empty()) {
    if (!arguments.positional.empty()) {
      throw_bad_input("format takes named arguments or others, not both");
    }
    std::vector<DictEntry> entries;
    for (const auto& [name, value] : arguments.keywords) {
      entries.emplace_back(runtime.budget.string(name), value);
    }
    return percent_format(runtime.budget, text, runtime.budget.dict(std::move(entries)));
  }
  return percent_format(runtime.budget, text,
                        runtime.budget.list(arguments.positional, ListKind::tuple));
}

// A run of word characters is a word: \w+, letters and numbers of every script, and "_".
Value filter_wordcount(Runtime& runtime, const Value& input, const Arguments& arguments) {
  arguments.bind("wordcount", {});
  const Value text = to_str(runtime.budget, input);
  const std::string& bytes = text.text()->bytes();
  runtime.budget.work(table_look_up_work * bytes.size());
  std::int64_t words = 0;
  bool in_word = false;
  for (std::size_t i = 0; i < bytes.size(); i += character_bytes(bytes[i])) {
    const char32_t character = decode_at(bytes, i);
    const bool is_word = character == '_' || has_flag(character, CharacterFlag::alpha) ||
                         has_flag(character, CharacterFlag::numeric);
    if (is_word && !in_word) ++words;
    in_word = is_word;
  }
  return Value::integer(words);
}

Value filter_truncate(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("truncate", {"length", "killwords", "end", "leeway"});
  const std::int64_t length = bound[0] == nullptr ? 255 : integer_argument("truncate", *bound[0]);
  const bool cuts_words = bound[1] != nullptr && is_true(*bound[1]);
  const Value end =
      bound[2] == nullptr ? runtime.budget.string("...") : to_str(runtime.budget, *bound[2]);
  const std::int64_t leeway = is_given(bound[3]) ? integer_argument("truncate", *bound[3]) : 5;
  const MarkedText& text = text_argument("truncate", input);
  const auto end_length = static_cast<std::int64_t>(count_characters(end.text()->bytes()));
  if (length < end_length || leeway < 0) {
    throw_bad_input("truncate needs a length of at least {} and a leeway of at least 0",
                    end_length);
  }
  runtime.budget.work(text.size());
  const auto size = static_cast<std::int64_t>(count_characters(text.bytes()));
  if (leeway >= size || size <= length + leeway) return input;
  Value kept = slice_text(runtime.budget, text, std::nullopt, length - end_length, 1);
  if (!cuts_words) {
    const std::size_t space = kept.text()->bytes().rfind(' ');
    if (space != std::string::npos) kept = runtime.budget.string(kept.text()->slice(0, space));
  }
  TextBuilder out(runtime.budget);
  out.append(*kept.text());
  out.append(*end.text());
  return out.finish();
}

Value filter_filesizeformat(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("filesizeformat", {"binary"});
  const bool is_binary = bound[0] != nullptr && is_true(*bound[0]);
  const std::optional<double> bytes = input.as_number();
  if (!bytes) throw_bad_input("filesizeformat needs a number, not a {}", input.type_name());
  static constexpr const char* decimal_units[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  static constexpr const char* binary_units[] = {"KiB", "MiB", "GiB", "TiB",
                                                 "PiB", "EiB", "ZiB", "YiB"};
  const double base = is_binary ? 1024 : 1000;
  if (*bytes == 1) return runtime.budget.string("1 Byte");
  if (*bytes < base) {
    if (!std::isfinite(*bytes)) throw_bad_input("filesizeformat needs a finite number");
    return runtime.budget.string(fmt::format("{:.0f} Bytes", std::trunc(*bytes)));
  }
  double unit = base;
  std::size_t i = 0;
  while (i + 1 < std::size(decimal_units) && *bytes >= unit * base) {
    unit *= base;
    ++i;
  }
  return runtime.budget.string(
      fmt::format("{:.1f} {}", *bytes / unit, (is_binary ? binary_units : decimal_units)[i]));
}

// Percent escapes of what may not stand in a URL; "/" may, outside of keys and values.
void append_quoted(TextBuilder& out, const MarkedText& text, bool is_query) {
  const std::string& bytes = text.bytes();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '-' || c == '~' ||
                          (c == '/' && !is_query);
    if (is_plain) {
      out.append_slice(text, i, i + 1);
    } else if (c == ' ' && is_query) {
      out.append("+", text.is_literal_at(i));
    } else {
      out.append(fmt::format("%{:02X}", static_cast<unsigned char>(c)), text.is_literal_at(i));
    }
  }
}

Value filter_urlencode(Runtime& runtime, const Value& input, const Arguments& arguments) {
  arguments.bind("urlencode", {});
  TextBuilder out(runtime.budget);
  const DictObject* dict = input.as_dict();
  if (dict == nullptr) {
    if (input.as_list() != nullptr) {
      throw_unsupported("urlencode of a list of pairs is not supported");
    }
    const Value text = to_str(runtime.budget, input);
    append_quoted(out, *text.text(), false);
    return out.finish();
  }
  bool is_first = true;
  for (const auto& [key, value] : dict->entries()) {
    if (!is_first) out.append("&");
    is_first = false;
    append_quoted(out, *to_str(runtime.budget, key).text(), true);
    out.append("=");
    append_quoted(out, *to_str(runtime.budget, value).text(), true);
  }
  return out.finish();
}

constexpr BuiltinFilter filters[] = {
    {"center", filter_center},       {"filesizeformat", filter_filesizeformat},
    {"format", filter_format},       {"truncate", filter_truncate},
    {"urlencode", filter_urlencode}, {"wordcount", filter_wordcount},
};

}  // namespace

const BuiltinFilter* find_layout_filter(std::string_view name) {
  return find_by_name(filters, name);
}

}  // namespace octet::jinja
