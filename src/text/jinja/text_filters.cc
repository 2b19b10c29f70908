// Filters that make text or numbers of one value.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/error.h"
#include "text/jinja/access.h"
#include "text/jinja/builtins.h"
#include "text/jinja/format.h"
#include "text/jinja/letter_case.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_operations.h"
#include "text/jinja/unicode.h"

namespace octet::jinja {
namespace {

// The input as text: filters on text take any value by its str().
class TextInput {
 public:
  TextInput(Runtime& runtime, const Value& input) : value_(to_str(runtime.budget, input)) {}
  const MarkedText& operator*() const { return *value_.text(); }
  const Value& value() const { return value_; }

 private:
  Value value_;
};

// What a filter makes of Markup is Markup again, if it is one of those that call str's methods.
Value like(Runtime& runtime, const Value& input, const Value& text) {
  return input.is_markup() ? runtime.budget.string(*text.text(), true) : text;
}

template <LetterCase letter_case>
Value filter_case(Runtime& runtime, const Value& input, const Arguments& arguments) {
  arguments.bind("a filter of letter case", {});
  const Value text = change_case(runtime.budget, *TextInput(runtime, input), letter_case);
  // The words of a title are joined as plain text.
  return letter_case == LetterCase::titled_words ? text : like(runtime, input, text);
}

Value filter_trim(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("trim", {"chars"});
  const bool has_characters = bound[0] != nullptr && !bound[0]->is_none();
  const Value text =
      strip(runtime.budget, *TextInput(runtime, input),
            has_characters ? &text_argument("trim", *bound[0]) : nullptr, Sides::both);
  return like(runtime, input, text);
}

Value filter_replace(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("replace", {"old", "new", "count"}, 2);
  const bool has_count = bound[2] != nullptr && !bound[2]->is_none();
  const std::int64_t count = has_count ? integer_argument("replace", *bound[2]) : -1;
  const TextInput old(runtime, *bound[0]);
  const TextInput replacement(runtime, *bound[1]);
  return replace(runtime.budget, *TextInput(runtime, input), *old, *replacement, count);
}

Value filter_string(Runtime& runtime, const Value& input, const Arguments& arguments) {
  arguments.bind("string", {});
  return TextInput(runtime, input).value();
}

// Nothing is escaped in the first place, but what is joined to Markup is.
Value filter_safe(Runtime& runtime, const Value& input, const Arguments& arguments) {
  arguments.bind("safe", {});
  return runtime.budget.string(*TextInput(runtime, input), true);
}

template <bool forced>
Value filter_escape(Runtime& runtime, const Value& input, const Arguments& arguments) {
  arguments.bind("escape", {});
  if (!forced && input.is_markup()) return input;
  return escape(runtime.budget, *TextInput(runtime, input));
}

Value filter_indent(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("indent", {"width", "first", "blank"});
  Value prefix = bound[0] == nullptr ? runtime.budget.string("    ") : *bound[0];
  if (prefix.text() == nullptr) {
    const Value space = runtime.budget.string(" ");
    prefix = apply_binary(BinaryOperator::multiply, space, prefix, runtime.budget);
  }
  const bool indents_first = bound[1] != nullptr && is_true(*bound[1]);
  const bool indents_blank = bound[2] != nullptr && is_true(*bound[2]);
  const TextInput text(runtime, input);
  const Value lines = split_lines(runtime.budget, *text, false);
  const std::string& bytes = (*text).bytes();
  TextBuilder out(runtime.budget);
  if (indents_first) out.append(*prefix.text());
  bool is_first = true;
  const auto add_line = [&](const MarkedText& line) {
    if (!is_first) {
      out.append("\n");
      if (!line.empty() || indents_blank) out.append(*prefix.text());
    }
    is_first = false;
    out.append(line);
  };
  for (const Value& line : lines.as_list()->items) add_line(*line.text());
  // Jinja adds "\n" before it splits, so that what follows the last line end is a line too, unless
  // the two make one line end.
  const bool adds_line =
      bytes.empty() ||
      (bytes.back() != '\r' &&
       is_python_line_end(decode_at(bytes, previous_character(bytes, bytes.size()))));
  if (adds_line) add_line(MarkedText());
  return out.finish(input.is_markup());
}

Value filter_tojson(Runtime& runtime, const Value& input, const Arguments& arguments) {
  // The arguments of transformers' own `tojson`, which takes the place of Jinja's.
  const auto bound =
      arguments.bind("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound[0] != nullptr && is_true(*bound[0]);
  style.sort_keys = bound[3] != nullptr && is_true(*bound[3]);
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    style.has_indent = true;
    if (bound[1]->text() != nullptr) {
      style.indent = bound[1]->text()->bytes();
    } else {
      const std::int64_t width = integer_argument("the indent of tojson", *bound[1]);
      if (width > 1000) throw_bad_input("tojson cannot indent by more than 1000");
      style.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    }
  }
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    const std::vector<Value> separators = items_of(*bound[2], runtime.budget);
    if (separators.size() != 2) throw_bad_input("the separators of tojson are two strings");
    style.item_separator = text_argument("the separators of tojson", separators[0]).bytes();
    style.key_separator = text_argument("the separators of tojson", separators[1]).bytes();
  }
  TextBuilder out(runtime.budget);
  append_json(out, input, style);
  return out.finish();
}

// Text that Python's int() or float() reads: without blanks around it and single underscores
// between digits. Empty where it is not of that form.
std::string number_text(const MarkedText& text) {
  const std::string& bytes = text.bytes();
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  while (begin < end && is_python_space(decode_at(bytes, begin)))
    begin += character_bytes(bytes[begin]);
  while (end > begin && is_python_space(decode_at(bytes, previous_character(bytes, end)))) {
    end = previous_character(bytes, end);
  }
  std::string result;
  for (std::size_t i = begin; i < end; ++i) {
    if (bytes[i] != '_') {
      result += bytes[i];
      continue;
    }
    const auto is_digit = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
    if (i == begin || i + 1 == end || !is_digit(bytes[i - 1]) || !is_digit(bytes[i + 1])) return "";
  }
  return result;
}

std::optional<double> parse_float(const MarkedText& text) {
  const std::string digits = number_text(text);
  const char* begin = digits.data();
  const char* end = begin + digits.size();
  if (begin != end && *begin == '+') ++begin;
  if (begin == end || (begin != digits.data() && *begin == '-')) return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(begin, end, value);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) return std::strtod(digits.c_str(), nullptr);
  return value;
}

std::optional<std::int64_t> parse_integer(const MarkedText& text, int base) {
  std::string digits = number_text(text);
  const bool negative = !digits.empty() && digits[0] == '-';
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.erase(0, 1);
  if (digits.size() > 2 && digits[0] == '0') {
    const char marker = static_cast<char>(digits[1] | 0x20);
    const int marked = marker == 'x' ? 16 : marker == 'o' ? 8 : marker == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      base = marked;
      digits.erase(0, 2);
    }
  }
  if (base == 0) base = 10;
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  if (negative) digits.insert(0, 1, '-');
  std::int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, value, base);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) return std::nullopt;
  if (result.ec != std::errc()) throw_bad_input("the filter 'int' met a number beyond 64 bits");
  return value;
}

std::optional<std::int64_t> truncate(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::abs(value) >= 9.2e18) throw_bad_input("the filter 'int' met a number beyond 64 bits");
  return static_cast<std::int64_t>(value);
}

Value filter_int(Runtime&, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("int", {"default", "base"});
  const std::int64_t base = bound[1] == nullptr ? 10 : integer_argument("int", *bound[1]);
  if (base != 0 && (base < 2 || base > 36)) throw_bad_input("int needs a base of 0 or 2 to 36");
  std::optional<std::int64_t> value = input.as_integer();
  if (const double* number = input.get_if<double>()) value = truncate(*number);
  if (const MarkedText* text = input.text()) {
    value = parse_integer(*text, static_cast<int>(base));
    if (!value) {
      if (const std::optional<double> number = parse_float(*text)) value = truncate(*number);
    }
  }
  if (value) return Value::integer(*value);
  if (const Undefined* undefined = input.get_if<Undefined>()) throw_undefined(*undefined);
  return bound[0] == nullptr ? Value::integer(0) : *bound[0];
}

Value filter_float(Runtime&, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("float", {"default"});
  std::optional<double> value = input.as_number();
  if (const MarkedText* text = input.text()) value = parse_float(*text);
  if (value) return Value::floating(*value);
  if (const Undefined* undefined = input.get_if<Undefined>()) throw_undefined(*undefined);
  return bound[0] == nullptr ? Value::floating(0.0) : *bound[0];
}

Value filter_abs(Runtime&, const Value& input, const Arguments& arguments) {
  arguments.bind("abs", {});
  if (const double* number = input.get_if<double>()) return Value::floating(std::abs(*number));
  const std::int64_t value = integer_argument("abs", input);
  return value < 0 ? apply_unary(UnaryOperator::minus, Value::integer(value))
                   : Value::integer(value);
}

// To `precision` digits after the point, halves to even, from the exact value of the double.
double round_to_digits(double value, std::int64_t precision) {
  if (!std::isfinite(value) || precision > 330) return value;
  if (precision < -330) return std::copysign(0.0, value);
  if (precision >= 0) {
    return std::strtod(fmt::format("{:.{}f}", value, precision).c_str(), nullptr);
  }
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / unit) * unit;
}

Value filter_round(Runtime&, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("round", {"precision", "method"});
  const std::int64_t precision = bound[0] == nullptr ? 0 : integer_argument("round", *bound[0]);
  const std::string method =
      bound[1] == nullptr ? "common" : text_argument("round", *bound[1]).bytes();
  const std::optional<double> number = input.as_number();
  if (!number) throw_bad_input("round needs a number, not a {}", input.type_name());
  if (method == "common") {
    if (input.as_integer()) {
      if (precision >= 0) return Value::integer(*input.as_integer());
      throw_unsupported("rounding an integer to tens is not supported");
    }
    return Value::floating(round_to_digits(*number, precision));
  }
  if (method != "ceil" && method != "floor") {
    throw_bad_input("the method of round is 'common', 'ceil' or 'floor'");
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = *number * unit;
  return Value::floating((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value filter_default(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("default", {"default_value", "boolean"});
  const bool takes_false = bound[1] != nullptr && is_true(*bound[1]);
  if (!input.is_undefined() && !(takes_false && !is_true(input))) return input;
  return bound[0] == nullptr ? runtime.budget.string("") : *bound[0];
}

constexpr BuiltinFilter filters[] = {
    {"abs", filter_abs},
    {"capitalize", filter_case<LetterCase::capitalized>},
    {"d", filter_default},
    {"default", filter_default},
    {"e", filter_escape<false>},
    {"escape", filter_escape<false>},
    {"float", filter_float},
    {"forceescape", filter_escape<true>},
    {"indent", filter_indent},
    {"int", filter_int},
    {"lower", filter_case<LetterCase::lower>},
    {"replace", filter_replace},
    {"round", filter_round},
    {"safe", filter_safe},
    {"string", filter_string},
    {"title", filter_case<LetterCase::titled_words>},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"upper", filter_case<LetterCase::upper>},
};

}  // namespace

const BuiltinFilter* find_text_filter(std::string_view name) { return find_by_name(filters, name); }

const BuiltinFilter* find_filter(std::string_view name) {
  for (const auto find : {find_text_filter, find_layout_filter, find_sequence_filter}) {
    if (const BuiltinFilter* filter = find(name)) return filter;
  }
  return nullptr;
}

}  // namespace octet::jinja
