// The two ways in which Python's str formats: "%s" and "{}".
#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/printable.h"
#include "text/jinja/access.h"
#include "text/jinja/format.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/text_operations.h"
#include "text/jinja/unicode.h"

namespace octet::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// What the conversion prints of a value that may go into Markup.
void append_value(TextBuilder& out, const Value& value, bool escapes) {
  if (!escapes || value.is_markup()) return append_str(out, value);
  const Value text = to_str(out.budget(), value);
  const Value escaped = escape(out.budget(), *text.text());
  out.append(*escaped.text());
}

// The arguments of "%": one after the other, or by their keys.
class PercentArguments {
 public:
  explicit PercentArguments(const Value& arguments) : arguments_(arguments) {
    const ListObject* list = arguments.as_list();
    if (list != nullptr && plain_kind(list->kind) == ListKind::tuple) items_ = &list->items;
  }

  const Value& next() {
    const std::size_t count = items_ == nullptr ? 1 : items_->size();
    if (taken_ == count) throw_bad_input("'%' lacks one of its arguments");
    return items_ == nullptr ? (++taken_, arguments_) : (*items_)[taken_++];
  }

  const Value& by_key(std::string_view key) {
    const DictObject* dict = arguments_.as_dict();
    if (dict == nullptr) throw_bad_input("'%(...)' needs a dict, not a {}", arguments_.type_name());
    const Value* entry = dict->find(key);
    if (entry == nullptr) throw_bad_input("'%' lacks the key '{}'", printable(key));
    return *entry;
  }

  // As Python, which takes lists and dicts for what "%(key)s" may look into.
  void check_all_taken() const {
    const bool is_mapping =
        arguments_.as_dict() != nullptr || (arguments_.as_list() != nullptr && items_ == nullptr);
    if (!is_mapping && taken_ < (items_ == nullptr ? 1 : items_->size())) {
      throw_bad_input("'%' has arguments that its text does not use");
    }
  }

 private:
  const Value& arguments_;
  const std::vector<Value>* items_ = nullptr;
  std::size_t taken_ = 0;
};

// "%[(key)][flags][width][.precision]type" of `text`, from after the "%" on.
class PercentField {
 public:
  PercentField(std::string_view text, std::size_t& at, PercentArguments& arguments)
      : text_(text), at_(at), arguments_(arguments) {}

  void append(TextBuilder& out, bool escapes) {
    const std::optional<std::string> key = take_key();
    take_flags();
    spec_.width = take_size(max_format_width);
    if (spec_.width < 0) {  // of an argument for "*"
      left_ = true;
      spec_.width = -spec_.width;
    }
    if (peek() == '.') {
      ++at_;
      spec_.precision = std::max<std::int64_t>(take_size(max_format_precision), 0);
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
    const char type = peek();
    ++at_;
    if (type == '%') return out.append("%");
    convert(out, type, key ? arguments_.by_key(*key) : arguments_.next(), escapes);
  }

 private:
  char peek() const {
    if (at_ >= text_.size()) throw_bad_input("the text before '%' ends inside of a format");
    return text_[at_];
  }

  std::optional<std::string> take_key() {
    if (peek() != '(') return std::nullopt;
    const std::size_t begin = ++at_;
    for (int depth = 1; depth > 0; ++at_) depth += peek() == '(' ? 1 : peek() == ')' ? -1 : 0;
    return std::string(text_.substr(begin, at_ - begin - 1));
  }

  void take_flags() {
    for (;; ++at_) {
      switch (peek()) {
        case '-':
          left_ = true;
          break;
        case '+':
          spec_.sign = '+';
          break;
        case ' ':
          if (spec_.sign == '-') spec_.sign = ' ';
          break;
        case '#':
          spec_.alternate = true;
          break;
        case '0':
          zero_ = true;
          break;
        default:
          return;
      }
    }
  }

  std::int64_t take_size(std::int64_t limit) {
    std::int64_t value = 0;
    if (peek() == '*') {
      ++at_;
      value = integer_argument("'*' of a format", arguments_.next());
    } else {
      for (; is_digit(peek()) && value <= limit; ++at_) value = value * 10 + (peek() - '0');
    }
    if (value > limit || value < -limit) {
      throw_bad_input("a width or precision of a format is above {}", limit);
    }
    return value;
  }

  void convert(TextBuilder& out, char type, const Value& value, bool escapes) {
    spec_.align = left_ ? '<' : '>';
    if (type == 's' || type == 'r' || type == 'c') return convert_text(out, type, value, escapes);
    if (zero_ && !left_) {
      spec_.align = '=';
      spec_.fill.assign(1, '0');
    }
    if (!value.as_number()) {
      if (const Undefined* undefined = value.get_if<Undefined>()) throw_undefined(*undefined);
      throw_bad_input("'%{}' needs a number, not a {}", printable(std::string(1, type)),
                      value.type_name());
    }
    if (std::string_view("eEfFgG").find(type) != std::string_view::npos) {
      spec_.type = type;
      return append_formatted(out, Value::floating(*value.as_number()), spec_);
    }
    if (std::string_view("diuoxX").find(type) == std::string_view::npos) {
      throw_bad_input("'%{}' is no format", printable(std::string(1, type)));
    }
    convert_integer(out, type, value);
  }

  void convert_integer(TextBuilder& out, char type, const Value& value) {
    const bool is_decimal = type == 'd' || type == 'i' || type == 'u';
    std::optional<std::int64_t> integer = value.as_integer();
    if (!integer && is_decimal && std::abs(*value.as_number()) < 9.2e18) {
      integer = static_cast<std::int64_t>(*value.as_number());
    }
    if (!integer) throw_bad_input("'%{}' needs an integer of 64 bits", type);
    spec_.type = is_decimal ? 'd' : type;
    const std::int64_t digits = std::exchange(spec_.precision, -1);
    if (digits < 0) return append_formatted(out, Value::integer(*integer), spec_);
    // A precision is a least number of digits; the width is of the whole.
    FormatSpec inner = spec_;
    inner.align = '=';
    inner.fill.assign(1, '0');
    const bool has_sign = *integer < 0 || spec_.sign != '-';
    inner.width = digits + (has_sign ? 1 : 0) + (spec_.alternate && !is_decimal ? 2 : 0);
    TextBuilder number(out.budget());
    append_formatted(number, Value::integer(*integer), inner);
    FormatSpec outer;
    outer.width = spec_.width;
    outer.align = spec_.align;
    outer.fill = spec_.fill;
    if (outer.align == '=') outer = FormatSpec{.align = '>', .width = spec_.width};
    append_formatted(out, number.finish(), outer);
  }

  void convert_text(TextBuilder& out, char type, const Value& value, bool escapes) {
    TextBuilder text(out.budget());
    if (type == 'c' && value.as_integer()) {
      append_formatted(text, value, FormatSpec{.type = 'c'});
    } else if (type == 'r') {
      append_repr(text, value);
    } else {
      append_value(text, value, escapes);
    }
    if (type == 'c' && count_characters(text.text().bytes()) != 1) {
      throw_bad_input("'%c' needs a character or its number");
    }
    FormatSpec spec;
    spec.width = spec_.width;
    spec.align = spec_.align;
    if (type != 'c') spec.precision = spec_.precision;
    append_formatted(out, text.finish(), spec);
  }

  std::string_view text_;
  std::size_t& at_;
  PercentArguments& arguments_;
  FormatSpec spec_;
  bool left_ = false;
  bool zero_ = false;
};

// The replacement fields of one str.format().
class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Arguments& arguments, bool escapes)
      : runtime_(runtime), arguments_(arguments), escapes_(escapes) {}

  // Fields in specifications go one level deep, as in Python.
  void append(TextBuilder& out, const MarkedText& text, int level) {
    const std::string_view bytes = text.bytes();
    std::size_t copied = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] != '{' && bytes[i] != '}') continue;
      out.append_slice(text, copied, i);
      if (i + 1 < bytes.size() && bytes[i + 1] == bytes[i]) {  // doubled: itself
        copied = ++i;
        continue;
      }
      if (bytes[i] == '}' || level == 2) throw_bad_input("format() met a brace without its pair");
      const std::size_t end = end_of_field(bytes, i + 1);
      append_field(out, text, i + 1, end, level);
      i = end;
      copied = end + 1;
    }
    out.append_slice(text, copied, bytes.size());
  }

 private:
  static std::size_t end_of_field(std::string_view bytes, std::size_t at) {
    for (int depth = 1; at < bytes.size(); ++at) {
      depth += bytes[at] == '{' ? 1 : bytes[at] == '}' ? -1 : 0;
      if (depth == 0) return at;
    }
    throw_bad_input("format() met a brace without its pair");
  }

  void append_field(TextBuilder& out, const MarkedText& text, std::size_t begin, std::size_t end,
                    int level) {
    const std::string_view field = std::string_view(text.bytes()).substr(begin, end - begin);
    std::size_t name_end = 0;
    for (bool in_brackets = false; name_end < field.size(); ++name_end) {
      const char c = field[name_end];
      if (c == '[') in_brackets = true;
      if (c == ']') in_brackets = false;
      if (!in_brackets && (c == '!' || c == ':')) break;
    }
    const Value value = look_up(field.substr(0, name_end));
    std::string_view rest = field.substr(name_end);
    char conversion = 0;
    if (rest.starts_with('!')) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) {
        throw_bad_input("format() met '!' without its one letter");
      }
      conversion = rest[1];
      rest.remove_prefix(2);
    }
    Value spec_text = runtime_.budget.string("");
    if (rest.starts_with(':')) {
      TextBuilder spec(runtime_.budget);
      append(spec, text.slice(end - rest.size() + 1, end), level + 1);
      spec_text = spec.finish();
    }
    append_converted(out, value, conversion, parse_format_spec(spec_text.text()->bytes()));
  }

  void append_converted(TextBuilder& out, Value value, char conversion, const FormatSpec& spec) {
    if (conversion == 'r') {
      TextBuilder text(runtime_.budget);
      append_repr(text, value);
      value = text.finish();
    } else if (conversion == 's') {
      value = to_str(runtime_.budget, value);
    } else if (conversion != 0) {
      throw_bad_input("format() knows the conversions !s and !r");
    }
    TextBuilder text(runtime_.budget);
    append_formatted(text, value.is_undefined() ? runtime_.budget.string("") : value, spec);
    append_value(out, text.finish(value.is_markup()), escapes_);
  }

  // "0.name[key]": an argument by its number or name (none: the next), then what is inside it.
  Value look_up(std::string_view name) {
    const std::size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, first_end));
    for (std::string_view rest = name.substr(first_end); !rest.empty();) {
      if (rest[0] == '.') {
        const std::size_t end = std::min(rest.find_first_of(".[", 1), rest.size());
        const Value key = runtime_.budget.string(rest.substr(1, end - 1));
        value = get_attribute(value, *key.get_if<StringPointer>(), runtime_.budget);
        rest.remove_prefix(end);
        continue;
      }
      const std::size_t end = rest.find(']');
      if (rest[0] != '[' || end == std::string_view::npos) {
        throw_bad_input("format() cannot read '{}'", printable(name.substr(0, 40)));
      }
      const std::string_view key = rest.substr(1, end - 1);
      const std::optional<std::size_t> index = number(key);
      value = get_item(
          value,
          index ? Value::integer(static_cast<std::int64_t>(*index)) : runtime_.budget.string(key),
          runtime_.budget);
      rest.remove_prefix(end + 1);
    }
    return value;
  }

  static std::optional<std::size_t> number(std::string_view text) {
    if (text.empty() || text.size() > 9 || !std::all_of(text.begin(), text.end(), is_digit)) {
      return std::nullopt;
    }
    return static_cast<std::size_t>(std::stoul(std::string(text)));
  }

  const Value& argument(std::string_view name) {
    std::optional<std::size_t> index = number(name);
    if (name.empty()) {
      if (numbered_) throw_bad_input("format() mixes numbered fields with fields without a number");
      index = next_++;
    } else if (index) {
      if (next_ > 0) throw_bad_input("format() mixes numbered fields with fields without a number");
      numbered_ = true;
    }
    if (index && *index < arguments_.positional.size()) return arguments_.positional[*index];
    const Value* keyword = index ? nullptr : arguments_.find_keyword(name);
    if (keyword == nullptr) throw_bad_input("format() lacks one of its arguments");
    return *keyword;
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  bool escapes_;
  bool numbered_ = false;
  std::size_t next_ = 0;
};

}  // namespace

Value percent_format(Budget& budget, const Value& text, const Value& arguments) {
  const MarkedText& source = *text.text();
  const std::string_view bytes = source.bytes();
  PercentArguments remaining(arguments);
  TextBuilder out(budget);
  std::size_t copied = 0;
  for (std::size_t at = bytes.find('%'); at != std::string_view::npos; at = bytes.find('%', at)) {
    out.append_slice(source, copied, at);
    ++at;
    PercentField(bytes, at, remaining).append(out, text.is_markup());
    copied = at;
  }
  out.append_slice(source, copied, bytes.size());
  remaining.check_all_taken();
  return out.finish(text.is_markup());
}

Value brace_format(Runtime& runtime, const Value& text, const Arguments& arguments) {
  TextBuilder out(runtime.budget);
  BraceFormatter(runtime, arguments, text.is_markup()).append(out, *text.text(), 0);
  return out.finish(text.is_markup());
}

}  // namespace octet::jinja
