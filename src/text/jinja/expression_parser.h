// The half of the parser that reads expressions.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace octet::jinja {

// Recursive descent, one function per level of precedence, lowest first. Shared with the statement
// parser, which derives from it.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens);

 protected:
  // Counts one level of recursion while it lives.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser);
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };

  // A whole expression; a comma makes a tuple of it where `allow_tuple` says so.
  ExpressionPointer parse_expression(bool allow_conditional = true);
  ExpressionPointer parse_tuple(bool allow_conditional = true);
  // "name | filter(...) | ...", applied to `input`, which may be none. At the first name.
  ExpressionPointer parse_filters(ExpressionPointer input);
  // At the "(".
  ArgumentExpressions parse_arguments();

  const Token& current() const { return tokens_[next_]; }
  const Token& look_ahead() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  const Token& take();  // the current token; moves on
  bool at_operator(std::string_view sign) const;
  bool at_name(std::string_view name) const;
  bool take_operator(std::string_view sign);  // moves on if it is there
  bool take_name(std::string_view name);
  void expect_operator(std::string_view sign);
  void expect(TokenKind kind, std::string_view what);
  std::string expect_name();
  bool at_end_of_tuple() const;
  [[noreturn]] void fail_unexpected(std::string_view expected) const;

  NameId intern(std::string_view name);
  ExpressionPointer make(Position position, Expression::Node node) const;

  std::vector<std::string> names_;
  // The macros around the current token, innermost last: told when their implicit names appear.
  std::vector<MacroDefinition*> macros_;

 private:
  ExpressionPointer parse_conditional();
  ExpressionPointer parse_or();
  ExpressionPointer parse_and();
  ExpressionPointer parse_not();
  ExpressionPointer parse_comparison();
  ExpressionPointer parse_sum();
  ExpressionPointer parse_concatenation();
  ExpressionPointer parse_product();
  ExpressionPointer parse_power();
  ExpressionPointer parse_unary(bool with_filters);
  ExpressionPointer parse_primary();
  ExpressionPointer parse_name();
  ExpressionPointer parse_string();
  ExpressionPointer parse_list();
  ExpressionPointer parse_dict();
  ExpressionPointer parse_postfix(ExpressionPointer expression);
  ExpressionPointer parse_filters_and_tests(ExpressionPointer expression);
  ExpressionPointer parse_attribute(ExpressionPointer object);
  ExpressionPointer parse_subscript(ExpressionPointer object);
  ExpressionPointer parse_call(ExpressionPointer callee);
  ExpressionPointer parse_test(ExpressionPointer input);
  ArgumentExpressions parse_test_arguments();
  std::string parse_dotted_name();

  std::vector<Token> tokens_;
  std::size_t next_ = 0;
  int nesting_ = 0;
  std::map<std::string, NameId, std::less<>> ids_;
};

}  // namespace octet::jinja
