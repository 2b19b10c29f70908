#include "core/json_reader.h"

#include <array>
#include <limits>

#include "core/error.h"
#include "core/printable.h"

namespace octet {

namespace {

bool is_digit(char character) { return character >= '0' && character <= '9'; }

// Characters that a string holds as they are and that need no second look: no quote, backslash,
// control character or byte of a longer UTF-8 sequence.
constexpr std::array<bool, 256> plain_characters = [] {
  std::array<bool, 256> plain = {};
  for (std::size_t value = 0x20; value < 0x80; ++value) plain[value] = true;
  plain['"'] = false;
  plain['\\'] = false;
  return plain;
}();

void append_utf8(std::uint32_t code_point, std::string& out) {
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      put(0xE0 | code_point >> 12);
    } else {
      put(0xF0 | code_point >> 18);
      put(0x80 | (code_point >> 12 & 0x3F));
    }
    put(0x80 | (code_point >> 6 & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

}  // namespace

void JsonReader::fail(std::string_view expected) const {
  if (position_ >= text_.size()) {
    throw_bad_input("{}: is not valid: its JSON ends after {} bytes, expected {}", what_,
                    text_.size(), expected);
  }
  throw_bad_input("{}: is not valid: its JSON has {} at byte {}, expected {}", what_,
                  printable(text_.substr(position_, 40), 40), position_, expected);
}

char JsonReader::peek() {
  while (position_ < text_.size()) {
    const char character = text_[position_];
    if (character != ' ' && character != '\n' && character != '\r' && character != '\t') {
      return character;
    }
    ++position_;
  }
  return '\0';
}

void JsonReader::expect(char character, std::string_view expected) {
  if (peek() != character || position_ >= text_.size()) fail(expected);
  ++position_;
}

void JsonReader::open(char bracket, std::string_view expected) {
  expect(bracket, expected);
  if (depth_ == max_depth) {
    throw_bad_input("{}: nests arrays and objects deeper than {}", what_, max_depth);
  }
  has_elements_[depth_] = false;
  ++depth_;
}

// Whether another element comes before the closing bracket; takes the comma or the bracket.
bool JsonReader::next(char bracket, std::string_view expected) {
  const char character = peek();
  if (character == bracket) {
    ++position_;
    --depth_;
    return false;
  }
  if (has_elements_[depth_ - 1]) expect(',', expected);
  has_elements_[depth_ - 1] = true;
  return true;
}

void JsonReader::begin_object() { open('{', "an object"); }

std::optional<std::string_view> JsonReader::next_key() {
  if (!next('}', "a comma or the end of the object")) return std::nullopt;
  const std::string_view key = read_string();
  expect(':', "a colon after a key");
  return key;
}

void JsonReader::begin_array() { open('[', "an array"); }

bool JsonReader::next_element() { return next(']', "a comma or the end of the array"); }

std::string_view JsonReader::read_string() {
  expect('"', "a string");
  const std::size_t first = position_;
  bool ascii = true;
  while (position_ < text_.size()) {
    const auto character = static_cast<unsigned char>(text_[position_]);
    if (!plain_characters[character]) {
      if (character == '"') break;
      if (character == '\\') return unescape(first);
      if (character < 0x20) fail("no control character in a string");
      ascii = false;
    }
    ++position_;
  }
  if (position_ >= text_.size()) fail("the end of a string");
  const std::string_view value = text_.substr(first, position_ - first);
  if (!ascii && !is_valid_utf8(value)) {
    position_ = first;
    fail("valid UTF-8");
  }
  ++position_;
  return value;
}

// The rest of a string that starts at `first` and has its first escape at the position.
std::string_view JsonReader::unescape(std::size_t first) {
  unescaped_.assign(text_.substr(first, position_ - first));
  while (position_ < text_.size()) {
    const auto character = static_cast<unsigned char>(text_[position_]);
    if (character == '"') {
      if (!is_valid_utf8(unescaped_)) {
        position_ = first;
        fail("valid UTF-8");
      }
      ++position_;
      return unescaped_;
    }
    if (character < 0x20) fail("no control character in a string");
    if (character == '\\') {
      append_escape();
    } else {
      unescaped_.push_back(text_[position_++]);
    }
  }
  fail("the end of a string");
}

void JsonReader::append_escape() {
  constexpr std::string_view names = "\"\\/bfnrt";
  constexpr std::string_view values = "\"\\/\b\f\n\r\t";
  const std::size_t start = position_++;
  const char name = position_ < text_.size() ? text_[position_] : '\0';
  if (const std::size_t index = names.find(name); index != names.npos) {
    unescaped_.push_back(values[index]);
    ++position_;
    return;
  }
  if (name == 'u') {
    std::uint32_t code_point = read_code_unit();
    if (code_point >= 0xD800 && code_point < 0xDC00 && text_.substr(position_, 2) == "\\u") {
      ++position_;
      const std::uint32_t low = read_code_unit();
      if (low >= 0xDC00 && low < 0xE000) {
        code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
      }
    }
    if (code_point < 0xD800 || code_point >= 0xE000) return append_utf8(code_point, unescaped_);
  }
  position_ = start;
  fail("an escape of JSON that stands for a character");
}

// Four hexadecimal digits after the 'u' at the position.
std::uint32_t JsonReader::read_code_unit() {
  std::uint32_t unit = 0;
  for (int digit = 0; digit < 4; ++digit) {
    ++position_;
    const char character = position_ < text_.size() ? text_[position_] : '\0';
    const auto lower = static_cast<char>(character | 0x20);
    if (is_digit(character)) {
      unit = unit * 16 + static_cast<std::uint32_t>(character - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      unit = unit * 16 + static_cast<std::uint32_t>(lower - 'a' + 10);
    } else {
      fail("four hexadecimal digits");
    }
  }
  ++position_;
  return unit;
}

std::uint64_t JsonReader::read_uint() {
  constexpr std::string_view expected = "an integer of at most 64 bits that is not negative";
  if (!is_digit(peek())) fail(expected);
  const std::size_t first = position_;
  std::uint64_t value = 0;
  for (; position_ < text_.size() && is_digit(text_[position_]); ++position_) {
    const auto digit = static_cast<std::uint64_t>(text_[position_] - '0');
    if (value > (std::numeric_limits<std::uint64_t>::max() - digit) / 10) {
      position_ = first;
      fail(expected);
    }
    value = value * 10 + digit;
  }
  const bool leading_zero = text_[first] == '0' && position_ - first > 1;
  const char after = position_ < text_.size() ? text_[position_] : '\0';
  if (leading_zero || after == '.' || after == 'e' || after == 'E') {
    position_ = first;
    fail(expected);
  }
  return value;
}

bool JsonReader::take_literal(std::string_view literal) {
  if (text_.substr(position_, literal.size()) != literal) return false;
  position_ += literal.size();
  return true;
}

bool JsonReader::try_null() { return peek() == 'n' && take_literal("null"); }

void JsonReader::skip_digits() {
  if (position_ >= text_.size() || !is_digit(text_[position_])) fail("a digit");
  while (position_ < text_.size() && is_digit(text_[position_])) ++position_;
}

void JsonReader::skip_number() {
  const auto at = [&](char character) {
    return position_ < text_.size() && text_[position_] == character;
  };
  if (at('-')) ++position_;
  if (at('0')) {
    ++position_;
  } else {
    skip_digits();
  }
  if (at('.')) {
    ++position_;
    skip_digits();
  }
  if (at('e') || at('E')) {
    ++position_;
    if (at('+') || at('-')) ++position_;
    skip_digits();
  }
}

// Recursion ends at max_depth.
void JsonReader::skip_value() {
  switch (peek()) {
    case '{':
      begin_object();
      while (next_key()) skip_value();
      return;
    case '[':
      begin_array();
      while (next_element()) skip_value();
      return;
    case '"':
      read_string();
      return;
    case 't':
    case 'f':
    case 'n':
      if (take_literal("true") || take_literal("false") || take_literal("null")) return;
      fail("a value");
    default:
      if (peek() != '-' && !is_digit(peek())) fail("a value");
      skip_number();
  }
}

void JsonReader::finish() {
  peek();
  if (position_ < text_.size()) fail("its end");
}

}  // namespace octet
