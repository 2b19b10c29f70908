#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "text/jinja/format.h"
#include "text/jinja/unicode.h"

namespace octet::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(TextBuilder& out, const JsonStyle& style) : out_(out), style_(style) {}

  void write(const Value& value) {
    out_.budget().step();
    if (const MarkedText* text = value.text()) return write_string(*text);
    if (const DictObject* dict = value.as_dict()) return write_dict(*dict);
    if (is_list_or_tuple(value)) return write_list(*value.as_list());
    write_scalar(value);
  }

 private:
  void write_scalar(const Value& value) {
    if (value.is_none()) return out_.append("null");
    if (const bool* boolean = value.get_if<bool>()) return out_.append(*boolean ? "true" : "false");
    if (const auto* integer = value.get_if<std::int64_t>()) {
      return out_.append(fmt::format("{}", *integer));
    }
    if (const double* number = value.get_if<double>()) {
      if (std::isnan(*number)) return out_.append("NaN");
      if (std::isinf(*number)) return out_.append(*number < 0 ? "-Infinity" : "Infinity");
      return out_.append(format_float(*number));
    }
    if (const Undefined* undefined = value.get_if<Undefined>()) throw_undefined(*undefined);
    throw_bad_input("a {} cannot be written as JSON", value.type_name());
  }

  // The escape of a character, empty where it stands for itself.
  std::string escape(char32_t character) const {
    switch (character) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\f':
        return "\\f";
      case '\b':
        return "\\b";
      default:
        break;
    }
    const auto code = static_cast<std::uint32_t>(character);
    if (code >= 0x20 && (!style_.ensure_ascii || code < 0x7F)) return "";
    if (code < 0x10000) return fmt::format("\\u{:04x}", code);
    const std::uint32_t beyond = code - 0x10000;  // as UTF-16's pair of surrogates
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (beyond >> 10), 0xDC00 + (beyond & 0x3FF));
  }

  void write_string(const MarkedText& text) {
    const std::string& bytes = text.bytes();
    out_.append("\"");
    std::size_t copied = 0;
    for (std::size_t i = 0; i < bytes.size();) {
      const std::size_t length = character_bytes(bytes[i]);
      const std::string escaped = escape(decode_at(bytes, i));
      if (!escaped.empty()) {
        out_.append_slice(text, copied, i);
        out_.append(escaped, text.is_literal_at(i));
        copied = i + length;
      }
      i += length;
    }
    out_.append_slice(text, copied, bytes.size());
    out_.append("\"");
  }

  void write_key(const Value& key) {
    if (const MarkedText* text = key.text()) return write_string(*text);
    out_.append("\"");
    write_scalar(key);
    out_.append("\"");
  }

  void new_line() {
    if (!style_.has_indent) return;
    out_.append("\n");
    for (int i = 0; i < level_; ++i) out_.append(style_.indent);
  }

  void separate() {
    const char* usual = style_.has_indent ? "," : ", ";
    out_.append(style_.item_separator.empty() ? usual : style_.item_separator);
    new_line();
  }

  void write_list(const ListObject& list) {
    if (list.items.empty()) return out_.append("[]");
    out_.append("[");
    ++level_;
    new_line();
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) separate();
      write(list.items[i]);
    }
    --level_;
    new_line();
    out_.append("]");
  }

  void write_dict(const DictObject& dict) {
    const std::vector<DictEntry>& entries = dict.entries();
    if (entries.empty()) return out_.append("{}");
    std::vector<std::size_t> sequence(entries.size());
    std::iota(sequence.begin(), sequence.end(), std::size_t{0});
    if (style_.sort_keys) {
      std::stable_sort(sequence.begin(), sequence.end(), [&](std::size_t a, std::size_t b) {
        return order(entries[a].first, entries[b].first, out_.budget()) < 0;
      });
    }
    out_.append("{");
    ++level_;
    new_line();
    for (std::size_t i = 0; i < sequence.size(); ++i) {
      if (i > 0) separate();
      write_key(entries[sequence[i]].first);
      out_.append(style_.key_separator);
      write(entries[sequence[i]].second);
    }
    --level_;
    new_line();
    out_.append("}");
  }

  TextBuilder& out_;
  const JsonStyle& style_;
  int level_ = 0;
};

}  // namespace

void append_json(TextBuilder& out, const Value& value, const JsonStyle& style) {
  JsonWriter(out, style).write(value);
}

}  // namespace octet::jinja
