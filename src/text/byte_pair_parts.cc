#include "text/byte_pair_parts.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "text/unicode.h"

namespace octet {
namespace {

bool is_white_space(std::string_view text) {
  for (std::size_t position = 0; position < text.size();) {
    if (text.substr(position, metaspace.size()) == metaspace) {
      position += metaspace.size();
      continue;
    }
    const Character character = character_at(text, position);
    if (character_class(character.code_point) != CharacterClass::whitespace) return false;
    position += character.bytes;
  }
  return !text.empty();
}

// <name> or </name> of the elements that Gemma's vocabulary lists.
bool is_html_tag(std::string_view text) {
  constexpr std::string_view names[] = {
      "a",      "b",   "bbox",  "blockquote", "body",  "caption", "code", "div",  "em",
      "footer", "h1",  "h2",    "h3",         "h4",    "h5",      "h6",   "html", "i",
      "iframe", "img", "li",    "s",          "span",  "strong",  "sub",  "sup",  "table",
      "tbody",  "td",  "tfoot", "th",         "thead", "tr",      "u",    "ul"};
  if (text.size() < 3 || text.front() != '<' || text.back() != '>') return false;
  text = text.substr(1, text.size() - 2);
  if (text.front() == '/') text.remove_prefix(1);
  return std::find(std::begin(names), std::end(names), text) != std::end(names);
}

int hexadecimal_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

}  // namespace

std::optional<unsigned char> byte_of_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  const int high = hexadecimal_digit(text[3]);
  const int low = hexadecimal_digit(text[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<unsigned char>(high * 16 + low);
}

std::string token_of_byte(unsigned char byte) { return fmt::format("<0x{:02X}>", byte); }

bool is_plain_added_text(std::string_view text, bool with_html) {
  return is_white_space(text) || (with_html && is_html_tag(text));
}

}  // namespace octet
