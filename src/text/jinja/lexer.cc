#include "text/jinja/lexer.h"

#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "text/jinja/limits.h"
#include "text/jinja/string_literal.h"
#include "text/jinja/unicode.h"

namespace octet::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

std::string normalize_newlines(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      result += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      result += '\n';
    }
  }
  if (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (position_ < source_.size()) lex_data();
    add(TokenKind::end_of_template, position_);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::size_t offset, std::string_view sentence) {
    throw_at(ErrorKind::bad_input, position_of(offset), sentence);
  }

  // Offsets come in ascending order (but for errors), so that a cursor finds them in linear time.
  Position position_of(std::size_t offset) {
    if (offset < cursor_) {
      cursor_ = 0;
      cursor_position_ = Position();
    }
    for (; cursor_ < offset; cursor_ += character_bytes(source_[cursor_])) {
      if (source_[cursor_] == '\n') {
        ++cursor_position_.line;
        cursor_position_.column = 1;
      } else {
        ++cursor_position_.column;
      }
    }
    return cursor_position_;
  }

  Token& add(TokenKind kind, std::size_t offset, std::string text = {}) {
    Token& token = tokens_.emplace_back();
    token.kind = kind;
    token.position = position_of(offset);
    token.text = std::move(text);
    return token;
  }

  bool starts_with(std::size_t offset, std::string_view text) const {
    return std::string_view(source_).substr(offset, text.size()) == text;
  }

  std::size_t skip_space(std::size_t offset) const {
    while (offset < source_.size() && is_python_space(decode_at(source_, offset))) {
      offset += character_bytes(source_[offset]);
    }
    return offset;
  }

  // The tag end (two characters) with its sign, and what it takes after itself: all whitespace
  // after "-", one newline if it trims, nothing after "+". No value where there is no such end.
  std::optional<std::size_t> match_end(std::size_t offset, std::string_view end, bool trims) const {
    if (starts_with(offset, "-") && starts_with(offset + 1, end)) {
      return skip_space(offset + 1 + end.size());
    }
    if (trims && starts_with(offset, "+") && starts_with(offset + 1, end)) {
      return offset + 1 + end.size();
    }
    if (!starts_with(offset, end)) return std::nullopt;
    offset += end.size();
    return trims && starts_with(offset, "\n") ? offset + 1 : offset;
  }

  // Emits source [position_, tag) as text, stripped as the tag at `tag` with this sign asks.
  void add_data(std::size_t tag, char sign, bool strips_line) {
    const std::size_t begin = position_;
    std::size_t end = tag;
    if (sign == '-') {
      while (end > begin) {
        const std::size_t previous = previous_character(source_, end);
        if (!is_python_space(decode_at(source_, previous))) break;
        end = previous;
      }
    } else if (sign != '+' && strips_line) {
      std::size_t line = end;
      while (line > begin && source_[line - 1] != '\n') --line;
      const bool starts_line = line == 0 || source_[line - 1] == '\n';
      if (starts_line && skip_space(line) >= end) end = line;
    }
    if (end > begin) add(TokenKind::data, begin, source_.substr(begin, end - begin));
  }

  char sign_at(std::size_t offset) const {
    const bool has_sign =
        offset < source_.size() && (source_[offset] == '-' || source_[offset] == '+');
    return has_sign ? source_[offset] : '\0';
  }

  // Text up to the next tag, and that tag.
  void lex_data() {
    std::size_t tag = position_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos) {
        add(TokenKind::data, position_, source_.substr(position_));
        position_ = source_.size();
        return;
      }
      const char second = tag + 1 < source_.size() ? source_[tag + 1] : '\0';
      if (second == '{' || second == '%' || second == '#') break;
      ++tag;
    }
    const char type = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    add_data(tag, sign, type != '{');
    position_ = tag + (sign == '\0' ? 2 : 3);
    if (type == '#') {
      lex_comment(tag);
    } else if (type == '%' && !lex_raw(tag)) {
      lex_tag(tag, TokenKind::block_begin, TokenKind::block_end, "%}");
    } else if (type == '{') {
      lex_tag(tag, TokenKind::variable_begin, TokenKind::variable_end, "}}");
    }
  }

  void lex_comment(std::size_t tag) {
    const std::size_t end = source_.find("#}", position_);
    if (end == std::string::npos) fail(tag, "this comment does not end");
    const bool has_sign = end > position_ && (source_[end - 1] == '-' || source_[end - 1] == '+');
    position_ = *match_end(has_sign ? end - 1 : end, "#}", true);
  }

  // {% raw %} ... {% endraw %}; false where the tag is another one.
  bool lex_raw(std::size_t tag) {
    std::size_t offset = skip_space(position_);
    if (!starts_with(offset, "raw")) return false;
    offset = skip_space(offset + 3);
    // Unlike other blocks, raw does not take the newline after it.
    if (starts_with(offset, "-%}")) {
      position_ = skip_space(offset + 3);
    } else if (starts_with(offset, "%}")) {
      position_ = offset + 2;
    } else {
      return false;
    }
    for (std::size_t end = position_; (end = source_.find("{%", end)) != std::string::npos; ++end) {
      const char sign = sign_at(end + 2);
      offset = skip_space(end + (sign == '\0' ? 2 : 3));
      if (!starts_with(offset, "endraw")) continue;
      const std::optional<std::size_t> after = match_end(skip_space(offset + 6), "%}", true);
      if (!after) continue;
      add_data(end, sign, true);
      position_ = *after;
      return true;
    }
    fail(tag, "this raw block does not end");
  }

  void lex_tag(std::size_t tag, TokenKind begin, TokenKind end, std::string_view end_text) {
    add(begin, tag);
    brackets_.clear();
    while (true) {
      position_ = skip_space(position_);
      if (position_ >= source_.size()) fail(tag, "this tag does not end");
      if (brackets_.empty()) {
        const bool trims = end == TokenKind::block_end;
        if (const std::optional<std::size_t> after = match_end(position_, end_text, trims)) {
          add(end, position_);
          position_ = *after;
          return;
        }
      }
      lex_token();
    }
  }

  void lex_token() {
    const char first = source_[position_];
    if (is_digit(first)) return lex_number();
    if (first == '\'' || first == '"') return lex_string();
    if (!is_letter(first)) return lex_operator();
    const std::size_t begin = position_;
    while (position_ < source_.size() &&
           (is_letter(source_[position_]) || is_digit(source_[position_]))) {
      ++position_;
    }
    add(TokenKind::name, begin, source_.substr(begin, position_ - begin));
  }

  void lex_string() {
    const std::size_t begin = position_;
    const char quote = source_[begin];
    for (++position_; position_ < source_.size() && source_[position_] != quote; ++position_) {
      if (source_[position_] == '\\') ++position_;
    }
    if (position_ >= source_.size()) fail(begin, "this string does not end");
    const std::string_view body =
        std::string_view(source_).substr(begin + 1, position_ - begin - 1);
    ++position_;
    const Position position = position_of(begin);
    add(TokenKind::string, begin, resolve_escapes(body, position));
  }

  // Digits with single underscores between them, from `offset`.
  std::size_t skip_digits(std::size_t offset) const {
    while (offset < source_.size() &&
           (is_digit(source_[offset]) || (source_[offset] == '_' && offset + 1 < source_.size() &&
                                          is_digit(source_[offset + 1])))) {
      ++offset;
    }
    return offset;
  }

  bool digit_at(std::size_t offset) const {
    return offset < source_.size() && is_digit(source_[offset]);
  }

  void lex_number() {
    const std::size_t begin = position_;
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';
    const char marker = begin + 1 < source_.size() ? source_[begin + 1] | 0x20 : '\0';
    if (source_[begin] == '0' && (marker == 'x' || marker == 'o' || marker == 'b')) {
      return lex_integer_with_base(marker == 'x' ? 16 : marker == 'o' ? 8 : 2);
    }
    const std::size_t whole = skip_digits(begin);
    std::size_t end = whole;
    if (!after_dot) {
      if (end < source_.size() && source_[end] == '.' && digit_at(end + 1))
        end = skip_digits(end + 1);
      if (end < source_.size() && (source_[end] | 0x20) == 'e') {
        const std::size_t digits = end + (sign_at(end + 1) == '\0' ? 1 : 2);
        if (digit_at(digits)) end = skip_digits(digits);
      }
    }
    position_ = end;
    if (end == whole) return add_integer(begin, source_.substr(begin, end - begin), 10);
    std::string text;
    for (const char c : std::string_view(source_).substr(begin, end - begin)) {
      if (c != '_') text += c;
    }
    double value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc()) fail(begin, "this number is beyond the range of a double");
    add(TokenKind::floating, begin, std::move(text)).floating = value;
  }

  void lex_integer_with_base(int base) {
    const std::size_t begin = position_;
    position_ += 2;
    while (position_ < source_.size() &&
           (is_letter(source_[position_]) || is_digit(source_[position_]))) {
      ++position_;
    }
    add_integer(begin, source_.substr(begin + 2, position_ - begin - 2), base);
  }

  void add_integer(std::size_t begin, std::string digits, int base) {
    std::erase(digits, '_');
    if (base == 10 && digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos) {
      fail(begin, "an integer cannot begin with 0");
    }
    std::int64_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto result = std::from_chars(digits.data(), end, value, base);
    if (result.ec != std::errc() || result.ptr != end) {
      fail(begin, "this is not an integer of at most 64 bits");
    }
    add(TokenKind::integer, begin, std::move(digits)).integer = value;
  }

  void lex_operator() {
    const std::size_t begin = position_;
    static constexpr std::string_view pairs[] = {"//", "**", "==", "!=", ">=", "<="};
    std::size_t length = 1;
    for (const std::string_view pair : pairs) {
      if (starts_with(begin, pair)) length = 2;
    }
    const char sign = source_[begin];
    if (length == 1 &&
        std::string_view("+-/*%~[](){}><=.:|,;").find(sign) == std::string_view::npos) {
      fail(begin, "a character that cannot stand here");
    }
    if (sign == '(' || sign == '[' || sign == '{') {
      brackets_ += sign == '(' ? ')' : sign == '[' ? ']' : '}';
    } else if (sign == ')' || sign == ']' || sign == '}') {
      if (brackets_.empty() || brackets_.back() != sign)
        fail(begin, "a bracket that closes nothing");
      brackets_.pop_back();
    }
    position_ += length;
    add(TokenKind::operator_sign, begin, source_.substr(begin, length));
  }

  std::string source_;
  std::size_t position_ = 0;
  std::vector<Token> tokens_;
  std::string brackets_;  // the closing brackets that are awaited
  std::size_t cursor_ = 0;
  Position cursor_position_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  if (source.size() > max_source_bytes) {
    throw_bad_input("the chat template has {} bytes, more than {}", source.size(),
                    max_source_bytes);
  }
  if (const std::optional<std::size_t> offset = find_invalid_utf8(source)) {
    throw_bad_input("the chat template is not UTF-8 at byte {}", *offset);
  }
  return Lexer(normalize_newlines(source)).run();
}

void throw_at(ErrorKind kind, Position position, std::string_view sentence) {
  throw_error(kind, "chat template, line {}, column {}: {}", position.line, position.column,
              sentence);
}

}  // namespace octet::jinja
