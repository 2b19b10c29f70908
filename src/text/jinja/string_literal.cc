#include "text/jinja/string_literal.h"

#include "text/jinja/lexer.h"
#include "text/jinja/unicode.h"

namespace octet::jinja {
namespace {

// The value of a digit up to base 16, 16 for anything else.
unsigned digit_value(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
  return 16;
}

// Reads up to `count` digits of `base` at `offset`, which it moves past them.
char32_t read_digits(std::string_view body, std::size_t& offset, std::size_t count, unsigned base) {
  char32_t value = 0;
  for (; count > 0 && offset < body.size() && digit_value(body[offset]) < base; --count, ++offset) {
    value = value * base + digit_value(body[offset]);
  }
  return value;
}

char32_t read_hexadecimal(std::string_view body, std::size_t& offset, std::size_t count,
                          Position position) {
  const std::size_t begin = offset;
  const char32_t value = read_digits(body, offset, count, 16);
  if (offset - begin != count) {
    throw_at(ErrorKind::bad_input, position, "this string has an escape with too few digits");
  }
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
    throw_at(ErrorKind::bad_input, position,
             "this string has an escape that is no Unicode character");
  }
  return value;
}

}  // namespace

std::string resolve_escapes(std::string_view body, Position position) {
  static constexpr std::string_view simple_names = "\\'\"abfnrtv\n";
  static constexpr std::string_view simple_values = "\\'\"\a\b\f\n\r\t\v";
  std::string result;
  result.reserve(body.size());
  for (std::size_t i = 0; i < body.size();) {
    if (body[i] != '\\' || i + 1 == body.size()) {
      result += body[i++];
      continue;
    }
    const char escape = body[i + 1];
    const std::size_t simple = simple_names.find(escape);
    if (digit_value(escape) < 8) {
      ++i;
      append_utf8(read_digits(body, i, 3, 8), result);
      continue;
    }
    i += 2;
    if (simple != std::string_view::npos) {
      if (simple < simple_values.size()) result += simple_values[simple];
    } else if (escape == 'x' || escape == 'u' || escape == 'U') {
      const std::size_t count = escape == 'x' ? 2 : escape == 'u' ? 4 : 8;
      append_utf8(read_hexadecimal(body, i, count, position), result);
    } else if (escape == 'N') {
      throw_at(ErrorKind::unsupported, position, "an escape \\N{...} by name is not supported");
    } else {
      result += '\\';
      result += escape;
    }
  }
  return result;
}

}  // namespace octet::jinja
