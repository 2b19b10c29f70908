#include "text/jinja/format.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "core/error.h"
#include "text/jinja/unicode.h"

namespace octet::jinja {
namespace {

// How repr() writes a character, empty where it stands for itself.
std::string escape_for_repr(char32_t character, char quote) {
  const auto code = static_cast<std::uint32_t>(character);
  if (character == '\n') return "\\n";
  if (character == '\r') return "\\r";
  if (character == '\t') return "\\t";
  if (code == static_cast<unsigned char>(quote) || code == '\\') {
    return fmt::format("\\{}", static_cast<char>(code));
  }
  if (has_flag(character, CharacterFlag::printable)) return "";
  if (code < 0x100) return fmt::format("\\x{:02x}", code);
  if (code < 0x10000) return fmt::format("\\u{:04x}", code);
  return fmt::format("\\U{:08x}", code);
}

// The mark of each character goes over to what stands for it.
void append_string_repr(TextBuilder& out, const MarkedText& text) {
  const std::string& bytes = text.bytes();
  const bool has_single = bytes.find('\'') != std::string::npos;
  const bool has_double = bytes.find('"') != std::string::npos;
  const std::string_view quote = has_single && !has_double ? "\"" : "'";
  out.append(quote);
  std::size_t copied = 0;
  for (std::size_t i = 0; i < bytes.size();) {
    const char32_t character = decode_at(bytes, i);
    const std::size_t length = character_bytes(bytes[i]);
    const std::string escaped = escape_for_repr(character, quote[0]);
    if (!escaped.empty()) {
      out.append_slice(text, copied, i);
      out.append(escaped, text.is_literal_at(i));
      copied = i + length;
    }
    i += length;
  }
  out.append_slice(text, copied, bytes.size());
  out.append(quote);
}

void append_list_repr(TextBuilder& out, const ListObject& list) {
  const bool is_tuple = plain_kind(list.kind) == ListKind::tuple;
  out.append(is_tuple ? "(" : "[");
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.append(", ");
    append_repr(out, list.items[i]);
  }
  out.append(is_tuple ? (list.items.size() == 1 ? ",)" : ")") : "]");
}

void append_dict_repr(TextBuilder& out, const DictObject& dict) {
  out.append("{");
  bool is_first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!is_first) out.append(", ");
    is_first = false;
    append_repr(out, key);
    out.append(": ");
    append_repr(out, value);
  }
  out.append("}");
}

}  // namespace

std::string format_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  // d.ddde[+-]xx with the fewest digits that read back the same.
  const auto result =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string scientific(buffer, result.ptr);
  const std::size_t exponent_at = scientific.find('e');
  const int exponent = std::atoi(scientific.c_str() + exponent_at + 1);
  std::string digits;
  for (const char c : scientific.substr(0, exponent_at)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  const std::string sign = std::signbit(value) ? "-" : "";
  // Python leaves the plain layout where repr() does: below 1e-4 and from 1e16 on.
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}{}{}{}e{}{:02}", sign, digits[0], digits.size() > 1 ? "." : "",
                       digits.substr(1), exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(-exponent - 1, '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

void append_str(TextBuilder& out, const Value& value) {
  if (const MarkedText* text = value.text()) {
    out.append(*text);
  } else if (!value.is_undefined()) {
    append_repr(out, value);
  }
}

void append_repr(TextBuilder& out, const Value& value) {
  out.budget().step();
  if (const MarkedText* text = value.text()) {
    if (!value.is_markup()) return append_string_repr(out, *text);
    out.append("Markup(");
    append_string_repr(out, *text);
    return out.append(")");
  }
  if (value.is_undefined()) return out.append("Undefined");
  if (value.is_none()) return out.append("None");
  if (const bool* boolean = value.get_if<bool>()) return out.append(*boolean ? "True" : "False");
  if (const auto* integer = value.get_if<std::int64_t>()) {
    return out.append(fmt::format("{}", *integer));
  }
  if (const double* number = value.get_if<double>()) return out.append(format_float(*number));
  if (const DictObject* dict = value.as_dict()) return append_dict_repr(out, *dict);
  if (const ListObject* list = value.as_list()) {
    switch (list->kind) {
      case ListKind::list:
      case ListKind::tuple:
      case ListKind::group:
        return append_list_repr(out, *list);
      case ListKind::dict_keys:
      case ListKind::dict_values:
      case ListKind::dict_items:
        out.append(value.type_name());
        out.append("(");
        append_list_repr(out, *list);
        return out.append(")");
      case ListKind::range:
      case ListKind::generator:
        break;
    }
  }
  throw_unsupported("printing a {} is not supported", value.type_name());
}

Value to_str(Budget& budget, const Value& value) {
  if (value.text() != nullptr) return value;
  TextBuilder out(budget);
  append_str(out, value);
  return out.finish();
}

}  // namespace octet::jinja
