#include "text/jinja/format_spec.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/printable.h"
#include "text/jinja/format.h"
#include "text/jinja/text_operations.h"
#include "text/jinja/unicode.h"

namespace octet::jinja {
namespace {

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A number in decimal digits at `offset`, past which it moves; `missing` where there is none.
std::int64_t take_number(std::string_view spec, std::size_t& offset, std::int64_t limit,
                         std::int64_t missing) {
  if (offset == spec.size() || !is_digit(spec[offset])) return missing;
  std::int64_t value = 0;
  for (; offset < spec.size() && is_digit(spec[offset]); ++offset) {
    value = value * 10 + (spec[offset] - '0');
    if (value > limit) throw_bad_input("a width or precision of a format is above {}", limit);
  }
  return value;
}

// Digits with `separator` between groups of `size`, counted from the right; at least `width` long
// with zeros before.
std::string group_digits(const std::string& digits, char separator, std::size_t size) {
  std::string result;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % size == 0) result += separator;
    result += digits[i];
  }
  return result;
}

// The parts of a number as text: what zeros and fill go between.
struct NumberText {
  std::string sign;
  std::string prefix;  // "0x"
  std::string digits;  // of the whole part; or "inf", "nan"
  std::string rest;    // fraction, exponent, "%"
};

void append_number(TextBuilder& out, NumberText number, const FormatSpec& spec) {
  const bool zero_fill = spec.align == '=' && spec.fill == "0";
  const bool is_grouped = spec.grouping != 0 && is_digit(number.digits[0]);
  const bool is_decimal =
      number.prefix.empty() && std::string_view("boxX").find(spec.type) == std::string_view::npos;
  const std::size_t group = is_decimal ? 3 : 4;
  if (is_grouped) {
    // Zeros that fill up are grouped as well, and never begin with a separator.
    std::string grouped = group_digits(number.digits, spec.grouping, group);
    const auto length = [&] {
      return static_cast<std::int64_t>(number.sign.size() + number.prefix.size() + grouped.size() +
                                       number.rest.size());
    };
    if (zero_fill && length() < spec.width) {
      const auto lacking = static_cast<std::size_t>(spec.width - length());
      std::string digits = number.digits;
      std::size_t added = 0;
      while (added < lacking) {
        digits.insert(0, 1, '0');
        const std::size_t before = grouped.size();
        grouped = group_digits(digits, spec.grouping, group);
        added += grouped.size() - before;
      }
    }
    number.digits = grouped;
  }
  const std::string head = number.sign + number.prefix;
  const auto length =
      static_cast<std::int64_t>(head.size() + number.digits.size() + number.rest.size());
  const std::int64_t missing = std::max<std::int64_t>(spec.width - length, 0);
  const char align = spec.align == 0 ? '>' : spec.align;
  const std::int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  if (align == '=') out.append(head);
  for (std::int64_t i = 0; i < before; ++i) out.append(spec.fill);
  if (align != '=') out.append(head);
  out.append(number.digits);
  out.append(number.rest);
  for (std::int64_t i = before; i < missing; ++i) out.append(spec.fill);
}

std::string sign_text(bool negative, char sign) {
  if (negative) return "-";
  return sign == '-' ? "" : std::string(1, sign);
}

NumberText integer_text(std::int64_t value, const FormatSpec& spec) {
  NumberText number;
  number.sign = sign_text(value < 0, spec.sign);
  const std::uint64_t size =
      value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  switch (spec.type) {
    case 'b':
      number.digits = fmt::format("{:b}", size);
      break;
    case 'o':
      number.digits = fmt::format("{:o}", size);
      break;
    case 'x':
      number.digits = fmt::format("{:x}", size);
      break;
    case 'X':
      number.digits = fmt::format("{:X}", size);
      break;
    default:
      number.digits = fmt::format("{}", size);
      return number;
  }
  if (spec.alternate) number.prefix = {'0', spec.type};
  return number;
}

// Of |value|, whose type is e, E, f, F, g, G, n, % or none.
std::string float_digits(double value, const FormatSpec& spec) {
  const auto precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  switch (spec.type) {
    case 'e':
      return spec.alternate ? fmt::format("{:#.{}e}", value, precision)
                            : fmt::format("{:.{}e}", value, precision);
    case 'E':
      return spec.alternate ? fmt::format("{:#.{}E}", value, precision)
                            : fmt::format("{:.{}E}", value, precision);
    case 'f':
    case 'F':
      return spec.alternate ? fmt::format("{:#.{}f}", value, precision)
                            : fmt::format("{:.{}f}", value, precision);
    case '%':
      return fmt::format("{:.{}f}%", value * 100, precision);
    case 'g':
    case 'n':
      return spec.alternate ? fmt::format("{:#.{}g}", value, std::max(precision, 1))
                            : fmt::format("{:.{}g}", value, std::max(precision, 1));
    case 'G':
      return spec.alternate ? fmt::format("{:#.{}G}", value, std::max(precision, 1))
                            : fmt::format("{:.{}G}", value, std::max(precision, 1));
    default:
      break;
  }
  if (spec.precision < 0) return format_float(value);
  // As g, but with a digit after the point where there is no exponent, which 1 decides one earlier.
  const int digits = std::max(precision, 1);
  const std::string scientific = fmt::format("{:.{}e}", value, digits - 1);
  const int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
  if (exponent < -4 || exponent >= digits - 1) {
    std::string mantissa = scientific.substr(0, scientific.find('e'));
    if (mantissa.find('.') != std::string::npos) {
      mantissa.erase(mantissa.find_last_not_of('0') + 1);
      if (mantissa.back() == '.') mantissa.pop_back();
    }
    return mantissa + scientific.substr(scientific.find('e'));
  }
  std::string text = fmt::format("{:.{}g}", value, digits);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

NumberText float_text(double value, const FormatSpec& spec) {
  NumberText number;
  number.sign = sign_text(std::signbit(value) && !std::isnan(value), spec.sign);
  const double size = std::abs(value);
  if (!std::isfinite(value)) {
    const bool upper = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
    number.digits = std::isnan(value) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
    if (spec.type == '%') number.rest.assign(1, '%');
    return number;
  }
  const std::string text = float_digits(size, spec);
  const auto end = std::find_if_not(text.begin(), text.end(), is_digit);
  number.digits.assign(text.begin(), end);
  number.rest.assign(end, text.end());
  return number;
}

[[noreturn]] void throw_type(const FormatSpec& spec, const Value& value) {
  throw_bad_input("the format '{}' cannot take a {}", printable(std::string(1, spec.type)),
                  value.type_name());
}

void append_text(TextBuilder& out, const Value& value, const FormatSpec& spec) {
  if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.sign != '-' ||
      spec.alternate || spec.grouping != 0) {
    throw_type(spec, value);
  }
  Value text = value;
  if (spec.precision >= 0) {
    text = slice_text(out.budget(), *text.text(), std::nullopt, spec.precision, 1);
  }
  const Sides sides = spec.align == '>'   ? Sides::left
                      : spec.align == '^' ? Sides::both
                                          : Sides::right;
  const auto length = static_cast<std::int64_t>(count_characters(text.text()->bytes()));
  const std::int64_t missing = std::max<std::int64_t>(spec.width - length, 0);
  const std::int64_t before = sides == Sides::left   ? missing
                              : sides == Sides::both ? missing / 2
                                                     : 0;
  for (std::int64_t i = 0; i < before; ++i) out.append(spec.fill);
  out.append(*text.text());
  for (std::int64_t i = before; i < missing; ++i) out.append(spec.fill);
}

}  // namespace

bool FormatSpec::is_empty() const {
  return align == 0 && sign == '-' && !alternate && width == 0 && grouping == 0 && precision < 0 &&
         type == 0;
}

FormatSpec parse_format_spec(std::string_view spec) {
  FormatSpec result;
  std::size_t at = 0;
  const std::size_t first = spec.empty() ? 0 : character_bytes(spec[0]);
  if (!spec.empty() && first < spec.size() && is_align(spec[first])) {
    result.fill = spec.substr(0, first);
    result.align = spec[first];
    at = first + 1;
  } else if (!spec.empty() && is_align(spec[0])) {
    result.align = spec[0];
    at = 1;
  }
  const bool has_fill = at > 1;
  const auto take = [&](std::string_view signs) {
    if (at == spec.size() || signs.find(spec[at]) == std::string_view::npos) return '\0';
    return spec[at++];
  };
  if (const char sign = take("+- ")) result.sign = sign;
  result.alternate = take("#") != 0;
  if (take("0") != 0) {
    if (!has_fill) result.fill.assign(1, '0');
    if (result.align == 0) result.align = '=';
  }
  result.width = take_number(spec, at, max_format_width, 0);
  result.grouping = take(",_");
  if (take(".") != 0) {
    result.precision = take_number(spec, at, max_format_precision, -1);
    if (result.precision < 0) throw_bad_input("a format has no precision after its point");
  }
  result.type = take("bcdeEfFgGnosxX%");
  if (at != spec.size()) throw_bad_input("'{}' is no format", printable(spec.substr(0, 40)));
  return result;
}

void append_formatted(TextBuilder& out, const Value& value, const FormatSpec& spec) {
  if (value.text() != nullptr) {
    // Zeros before a string stand on the right: str has no sign to put them after.
    FormatSpec of_text = spec;
    if (spec.align == '=' && spec.fill == "0") of_text.align = '<';
    return append_text(out, value, of_text);
  }
  if (spec.is_empty()) return append_str(out, value);
  if (!value.as_number()) throw_type(spec, value);
  const bool wants_float =
      std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos && spec.type != 0;
  if (value.as_integer() && !wants_float) {
    if (spec.precision >= 0 || spec.type == 's') throw_type(spec, value);
    if (spec.type == 'c') {
      std::string character;
      const std::int64_t code = *value.as_integer();
      if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) throw_type(spec, value);
      append_utf8(static_cast<char32_t>(code), character);
      FormatSpec of_text = spec;
      of_text.type = 0;
      return append_text(out, out.budget().string(character), of_text);
    }
    return append_number(out, integer_text(*value.as_integer(), spec), spec);
  }
  if (spec.type != 0 && std::string_view("eEfFgGn%").find(spec.type) == std::string_view::npos) {
    throw_type(spec, value);
  }
  append_number(out, float_text(*value.as_number(), spec), spec);
}

}  // namespace octet::jinja
