#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "text/jinja/expression_parser.h"

namespace octet::jinja {
namespace {

// Statements, on top of expressions.
class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Program run() {
    Program program;
    program.well_known = {intern("loop"), intern("caller"), intern("varargs"), intern("kwargs")};
    program.body = parse_body({});
    program.names = std::move(names_);
    return program;
  }

 private:
  // Statements up to a tag that begins with one of `ends`, whose name is then the current token; up
  // to the end of the template where there are none.
  Body parse_body(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(*this);
    Body body;
    while (true) {
      const Token& token = current();
      switch (token.kind) {
        case TokenKind::data:
          body.push_back({TextStatement{take().text}, token.position});
          break;
        case TokenKind::variable_begin: {
          take();
          ExpressionPointer value = parse_tuple();
          expect(TokenKind::variable_end, "'}}'");
          body.push_back({OutputStatement{std::move(value)}, token.position});
          break;
        }
        case TokenKind::block_begin: {
          take();
          if (std::any_of(ends.begin(), ends.end(), [this](auto name) { return at_name(name); })) {
            return body;
          }
          body.push_back({parse_statement(), token.position});
          expect(TokenKind::block_end, "'%}'");
          break;
        }
        default:
          if (token.kind != TokenKind::end_of_template || ends.size() != 0) {
            fail_unexpected(ends.size() == 0 ? "text or a tag"
                                             : fmt::format("'{}'", *ends.begin()));
          }
          return body;
      }
    }
  }

  // A body with the end of the tag before it and its closing name after it.
  Body parse_block(std::string_view end) {
    Body body = parse_open_block({end});
    take();
    return body;
  }

  Body parse_open_block(std::initializer_list<std::string_view> ends) {
    take_operator(":");
    expect(TokenKind::block_end, "'%}'");
    return parse_body(ends);
  }

  Statement::Node parse_statement() {
    const Position position = current().position;
    const std::string tag = expect_name();
    if (tag == "if") return parse_if();
    if (tag == "for") return parse_for();
    if (tag == "set") return parse_set();
    if (tag == "macro") return parse_macro();
    if (tag == "call") return parse_call_block(position);
    if (tag == "filter") {
      ExpressionPointer filter = parse_filters(nullptr);
      return FilterBlockStatement{std::move(filter), parse_block("endfilter")};
    }
    if (tag == "with") return parse_with();
    if (tag == "print") return parse_print(position);
    if (tag == "generation") return ScopeStatement{parse_block("endgeneration")};
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) {
        throw_at(ErrorKind::bad_input, position, fmt::format("'{}' outside of a loop", tag));
      }
      if (tag == "break") return BreakStatement{};
      return ContinueStatement{};
    }
    const bool is_end = tag == "else" || tag == "elif" || tag.rfind("end", 0) == 0;
    throw_at(is_end ? ErrorKind::bad_input : ErrorKind::unsupported, position,
             is_end ? fmt::format("'{}' closes nothing here", tag)
                    : fmt::format("the tag '{}' is not supported", tag));
  }

  OutputStatement parse_print(Position position) {
    ConcatenationExpression values;
    do {
      values.parts.push_back(parse_expression());
    } while (take_operator(","));
    return {make(position, std::move(values))};
  }

  IfStatement parse_if() {
    IfStatement node;
    do {
      ExpressionPointer condition = parse_tuple(false);
      Body body = parse_open_block({"endif", "elif", "else"});
      node.branches.emplace_back(std::move(condition), std::move(body));
    } while (take_name("elif"));
    if (take_name("else")) {
      node.otherwise = parse_block("endif");
    } else {
      take();
    }
    return node;
  }

  ForStatement parse_for() {
    ForStatement node;
    node.target = parse_target("in", false);
    if (!take_name("in")) fail_unexpected("'in'");
    node.iterable = parse_tuple(false);
    if (take_name("if")) node.condition = parse_expression();
    node.is_recursive = take_name("recursive");
    ++loops_;
    node.body = parse_open_block({"endfor", "else"});
    --loops_;
    if (take_name("else")) {
      node.otherwise = parse_block("endfor");
    } else {
      take();
    }
    return node;
  }

  Statement::Node parse_set() {
    Target target = parse_target({}, true);
    if (take_operator("=")) return SetStatement{std::move(target), parse_tuple()};
    ExpressionPointer filter;
    if (take_operator("|")) filter = parse_filters(nullptr);
    return SetBlockStatement{std::move(target), std::move(filter), parse_block("endset")};
  }

  WithStatement parse_with() {
    WithStatement node;
    while (current().kind != TokenKind::block_end) {
      if (!node.variables.empty()) expect_operator(",");
      Target target = parse_single_target(false);
      expect_operator("=");
      node.variables.emplace_back(std::move(target), parse_expression());
    }
    node.body = parse_block("endwith");
    return node;
  }

  MacroStatement parse_macro() {
    MacroStatement node;
    node.definition = std::make_unique<MacroDefinition>();
    const std::string name = expect_name();
    node.id = intern(name);
    const Value value = Value::string(name, false);
    node.definition->name = *value.get_if<StringPointer>();
    macros_.push_back(node.definition.get());
    parse_parameters(*node.definition);
    parse_macro_body(*node.definition, "endmacro");
    return node;
  }

  CallBlockStatement parse_call_block(Position position) {
    CallBlockStatement node;
    node.caller = std::make_unique<MacroDefinition>();
    const Value name = Value::string("caller", false);
    node.caller->name = *name.get_if<StringPointer>();
    macros_.push_back(node.caller.get());
    if (at_operator("(")) parse_parameters(*node.caller);
    macros_.pop_back();
    node.call = parse_expression();
    if (!std::holds_alternative<CallExpression>(node.call->node)) {
      throw_at(ErrorKind::bad_input, position, "expected the call of a macro after 'call'");
    }
    macros_.push_back(node.caller.get());
    parse_macro_body(*node.caller, "endcall");
    return node;
  }

  void parse_parameters(MacroDefinition& macro) {
    expect_operator("(");
    while (!take_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      MacroParameter parameter;
      parameter.name = expect_name();
      parameter.id = intern(parameter.name);
      if (take_operator("=")) {
        parameter.default_value = parse_expression();
      } else if (!macro.parameters.empty() && macro.parameters.back().default_value != nullptr) {
        fail_unexpected("a default value, as the parameter before has");
      }
      macro.parameters.push_back(std::move(parameter));
    }
  }

  // The macro is the last of macros_.
  void parse_macro_body(MacroDefinition& macro, std::string_view end) {
    const int loops_outside = std::exchange(loops_, 0);
    macro.body = parse_block(end);
    loops_ = loops_outside;
    macros_.pop_back();
  }

  // One target or several with commas, up to `end` (a name) or the end of the tag.
  Target parse_target(std::string_view end, bool allow_attribute) {
    const Position position = current().position;
    Target first = parse_single_target(allow_attribute);
    if (!at_operator(",")) return first;
    Target::Tuple tuple;
    tuple.push_back(std::move(first));
    while (take_operator(",") && !at_end_of_tuple() && !at_operator("=") && !at_name(end)) {
      tuple.push_back(parse_single_target(allow_attribute));
    }
    return {std::move(tuple), position};
  }

  Target parse_single_target(bool allow_attribute) {
    const Nesting nesting(*this);
    const Position position = current().position;
    if (take_operator("(")) {
      Target inside = parse_target({}, allow_attribute);
      expect_operator(")");
      return inside;
    }
    const std::string name = expect_name();
    for (const std::string_view reserved : {"true", "True", "false", "False", "none", "None"}) {
      if (name == reserved) {
        throw_at(ErrorKind::bad_input, position, fmt::format("cannot assign to '{}'", name));
      }
    }
    if (allow_attribute && take_operator(".")) {
      const Value value = Value::string(name, false);
      return {
          Target::NamespaceAttribute{intern(name), *value.get_if<StringPointer>(), expect_name()},
          position};
    }
    return {Target::Variable{intern(name)}, position};
  }

  int loops_ = 0;  // around the current token, within its macro
};

}  // namespace

Program parse(std::string_view source) { return Parser(tokenize(source)).run(); }

}  // namespace octet::jinja
