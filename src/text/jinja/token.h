// What the lexer hands to the parser.
#pragma once

#include <cstdint>
#include <string>

namespace octet::jinja {

struct Position {
  int line = 1;  // both from 1; columns count characters
  int column = 1;
};

enum class TokenKind {
  data,  // template text, with whitespace control applied
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,  // text: with escapes resolved
  integer,
  floating,
  operator_sign,  // text: the operator or bracket
  end_of_template,
};

struct Token {
  TokenKind kind = TokenKind::end_of_template;
  std::string text;
  std::int64_t integer = 0;
  double floating = 0;
  Position position;
};

}  // namespace octet::jinja
