#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <optional>

#include "text/jinja/builtins.h"
#include "text/jinja/limits.h"

namespace octet::jinja {
namespace {

class HeightOfChildren {
 public:
  int height() const { return height_; }

  void operator()(const ConstantExpression&) {}
  void operator()(const NameExpression&) {}
  void operator()(const ListExpression& node) { add(node.items); }
  void operator()(const DictExpression& node) {
    for (const auto& [key, value] : node.entries) {
      add(key);
      add(value);
    }
  }
  void operator()(const AttributeExpression& node) { add(node.object); }
  void operator()(const ItemExpression& node) {
    add(node.object);
    add(node.key);
  }
  void operator()(const SliceExpression& node) {
    add(node.object);
    add(node.begin);
    add(node.end);
    add(node.step);
  }
  void operator()(const CallExpression& node) {
    add(node.callee);
    add(node.arguments);
  }
  void operator()(const FilterExpression& node) {
    add(node.input);
    add(node.arguments);
  }
  void operator()(const TestExpression& node) {
    add(node.input);
    add(node.arguments);
  }
  void operator()(const UnaryExpression& node) { add(node.operand); }
  void operator()(const BinaryExpression& node) {
    add(node.left);
    add(node.right);
  }
  void operator()(const LogicalExpression& node) {
    add(node.left);
    add(node.right);
  }
  void operator()(const ConcatenationExpression& node) { add(node.parts); }
  void operator()(const ComparisonExpression& node) {
    add(node.first);
    for (const auto& [comparison, operand] : node.rest) add(operand);
  }
  void operator()(const ConditionalExpression& node) {
    add(node.condition);
    add(node.value);
    add(node.otherwise);
  }

 private:
  void add(const ExpressionPointer& child) {
    if (child != nullptr) height_ = std::max(height_, child->height);
  }
  void add(const std::vector<ExpressionPointer>& children) {
    for (const ExpressionPointer& child : children) add(child);
  }
  void add(const ArgumentExpressions& arguments) {
    add(arguments.positional);
    for (const KeywordArgument& keyword : arguments.keywords) add(keyword.value);
    add(arguments.more_positional);
    add(arguments.more_keywords);
  }

  int height_ = 0;
};

}  // namespace

ExpressionParser::ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

ExpressionParser::Nesting::Nesting(ExpressionParser& parser) : parser_(parser) {
  if (parser_.nesting_ >= max_nesting) {
    throw_at(ErrorKind::bad_input, parser_.current().position,
             fmt::format("more than {} brackets or blocks inside each other", max_nesting));
  }
  ++parser_.nesting_;
}

const Token& ExpressionParser::take() {
  const Token& token = tokens_[next_];
  if (next_ + 1 < tokens_.size()) ++next_;
  return token;
}

bool ExpressionParser::at_operator(std::string_view sign) const {
  return current().kind == TokenKind::operator_sign && current().text == sign;
}

bool ExpressionParser::at_name(std::string_view name) const {
  return current().kind == TokenKind::name && current().text == name;
}

bool ExpressionParser::take_operator(std::string_view sign) {
  if (!at_operator(sign)) return false;
  take();
  return true;
}

bool ExpressionParser::take_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}

void ExpressionParser::expect_operator(std::string_view sign) {
  if (!take_operator(sign)) fail_unexpected(fmt::format("'{}'", sign));
}

void ExpressionParser::expect(TokenKind kind, std::string_view what) {
  if (current().kind != kind) fail_unexpected(what);
  take();
}

std::string ExpressionParser::expect_name() {
  if (current().kind != TokenKind::name) fail_unexpected("a name");
  return take().text;
}

bool ExpressionParser::at_end_of_tuple() const {
  return current().kind == TokenKind::variable_end || current().kind == TokenKind::block_end ||
         at_operator(")");
}

void ExpressionParser::fail_unexpected(std::string_view expected) const {
  const Token& token = current();
  std::string found;
  switch (token.kind) {
    case TokenKind::data:
    case TokenKind::variable_begin:
    case TokenKind::block_begin:
      found = "the text of the template";
      break;
    case TokenKind::variable_end:
    case TokenKind::block_end:
      found = "the end of the tag";
      break;
    case TokenKind::end_of_template:
      found = "the end of the template";
      break;
    case TokenKind::string:
      found = "a string";
      break;
    case TokenKind::name:
    case TokenKind::integer:
    case TokenKind::floating:
    case TokenKind::operator_sign:
      found = fmt::format("'{}'", token.text.substr(0, 40));
      break;
  }
  throw_at(ErrorKind::bad_input, token.position,
           fmt::format("expected {}, found {}", expected, found));
}

NameId ExpressionParser::intern(std::string_view name) {
  const auto known = ids_.find(name);
  if (known != ids_.end()) return known->second;
  const auto id = static_cast<NameId>(names_.size());
  names_.emplace_back(name);
  ids_.emplace(name, id);
  return id;
}

// The height bounds every recursion over the tree: left-leaning chains ("a + b + c ...") are built
// by loops, which no nesting limit stops.
ExpressionPointer ExpressionParser::make(Position position, Expression::Node node) const {
  HeightOfChildren children;
  std::visit(children, node);
  if (children.height() >= max_tree_height) {
    throw_at(ErrorKind::bad_input, position,
             fmt::format("an expression of more than {} operations on top of each other",
                         max_tree_height));
  }
  return std::make_unique<Expression>(Expression{std::move(node), position, children.height() + 1});
}

ExpressionPointer ExpressionParser::parse_expression(bool allow_conditional) {
  const Nesting nesting(*this);
  return allow_conditional ? parse_conditional() : parse_or();
}

ExpressionPointer ExpressionParser::parse_tuple(bool allow_conditional) {
  const Position position = current().position;
  if (at_end_of_tuple()) fail_unexpected("an expression");
  ExpressionPointer first = parse_expression(allow_conditional);
  if (!at_operator(",")) return first;
  ListExpression tuple{{}, ListKind::tuple};
  tuple.items.push_back(std::move(first));
  while (take_operator(",") && !at_end_of_tuple()) {
    tuple.items.push_back(parse_expression(allow_conditional));
  }
  return make(position, std::move(tuple));
}

ExpressionPointer ExpressionParser::parse_conditional() {
  const Position position = current().position;
  ExpressionPointer value = parse_or();
  while (take_name("if")) {
    ExpressionPointer condition = parse_or();
    ExpressionPointer otherwise;
    if (take_name("else")) otherwise = parse_expression();
    value = make(position, ConditionalExpression{std::move(condition), std::move(value),
                                                 std::move(otherwise)});
  }
  return value;
}

ExpressionPointer ExpressionParser::parse_or() {
  ExpressionPointer left = parse_and();
  while (at_name("or")) {
    const Position position = take().position;
    left = make(position, LogicalExpression{false, std::move(left), parse_and()});
  }
  return left;
}

ExpressionPointer ExpressionParser::parse_and() {
  ExpressionPointer left = parse_not();
  while (at_name("and")) {
    const Position position = take().position;
    left = make(position, LogicalExpression{true, std::move(left), parse_not()});
  }
  return left;
}

ExpressionPointer ExpressionParser::parse_not() {
  if (!at_name("not")) return parse_comparison();
  const Nesting nesting(*this);
  const Position position = take().position;
  return make(position, UnaryExpression{UnaryOperator::logical_not, parse_not()});
}

ExpressionPointer ExpressionParser::parse_comparison() {
  static constexpr std::pair<std::string_view, Comparison> signs[] = {
      {"==", Comparison::equal},  {"!=", Comparison::not_equal},
      {"<", Comparison::less},    {"<=", Comparison::less_equal},
      {">", Comparison::greater}, {">=", Comparison::greater_equal},
  };
  const auto take_comparison = [this]() -> std::optional<Comparison> {
    if (take_name("in")) return Comparison::in;
    if (at_name("not") && look_ahead().kind == TokenKind::name && look_ahead().text == "in") {
      take();
      take();
      return Comparison::not_in;
    }
    for (const auto& [sign, comparison] : signs) {
      if (take_operator(sign)) return comparison;
    }
    return std::nullopt;
  };
  ExpressionPointer first = parse_sum();
  const Position position = current().position;
  std::vector<std::pair<Comparison, ExpressionPointer>> rest;
  while (const std::optional<Comparison> comparison = take_comparison()) {
    rest.emplace_back(*comparison, parse_sum());
  }
  if (rest.empty()) return first;
  return make(position, ComparisonExpression{std::move(first), std::move(rest)});
}

ExpressionPointer ExpressionParser::parse_sum() {
  ExpressionPointer left = parse_concatenation();
  while (at_operator("+") || at_operator("-")) {
    const Token& sign = take();
    const BinaryOperator operation =
        sign.text == "+" ? BinaryOperator::add : BinaryOperator::subtract;
    left = make(sign.position, BinaryExpression{operation, std::move(left), parse_concatenation()});
  }
  return left;
}

ExpressionPointer ExpressionParser::parse_concatenation() {
  ExpressionPointer first = parse_product();
  if (!at_operator("~")) return first;
  const Position position = current().position;
  ConcatenationExpression node;
  node.parts.push_back(std::move(first));
  while (take_operator("~")) node.parts.push_back(parse_product());
  return make(position, std::move(node));
}

ExpressionPointer ExpressionParser::parse_product() {
  static constexpr std::pair<std::string_view, BinaryOperator> signs[] = {
      {"*", BinaryOperator::multiply},
      {"/", BinaryOperator::divide},
      {"//", BinaryOperator::floor_divide},
      {"%", BinaryOperator::modulo},
  };
  ExpressionPointer left = parse_power();
  while (true) {
    const auto sign = std::find_if(std::begin(signs), std::end(signs),
                                   [this](const auto& known) { return at_operator(known.first); });
    if (sign == std::end(signs)) return left;
    const Position position = take().position;
    left = make(position, BinaryExpression{sign->second, std::move(left), parse_power()});
  }
}

// Unlike Python's, Jinja's power binds to the left, and less than the sign before it.
ExpressionPointer ExpressionParser::parse_power() {
  ExpressionPointer left = parse_unary(true);
  while (at_operator("**")) {
    const Position position = take().position;
    left =
        make(position, BinaryExpression{BinaryOperator::power, std::move(left), parse_unary(true)});
  }
  return left;
}

ExpressionPointer ExpressionParser::parse_unary(bool with_filters) {
  ExpressionPointer expression;
  if (at_operator("-") || at_operator("+")) {
    const Nesting nesting(*this);
    const Token& sign = take();
    const UnaryOperator operation = sign.text == "-" ? UnaryOperator::minus : UnaryOperator::plus;
    expression = make(sign.position, UnaryExpression{operation, parse_unary(false)});
  } else {
    expression = parse_primary();
  }
  expression = parse_postfix(std::move(expression));
  return with_filters ? parse_filters_and_tests(std::move(expression)) : std::move(expression);
}

ExpressionPointer ExpressionParser::parse_primary() {
  const Token& token = current();
  switch (token.kind) {
    case TokenKind::name:
      return parse_name();
    case TokenKind::string:
      return parse_string();
    case TokenKind::integer:
      return make(token.position, ConstantExpression{Value::integer(take().integer)});
    case TokenKind::floating:
      return make(token.position, ConstantExpression{Value::floating(take().floating)});
    default:
      break;
  }
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  if (!take_operator("(")) fail_unexpected("an expression");
  if (take_operator(")")) return make(token.position, ListExpression{{}, ListKind::tuple});
  ExpressionPointer inside = parse_tuple();
  expect_operator(")");
  return inside;
}

ExpressionPointer ExpressionParser::parse_name() {
  const Token& token = take();
  const std::string& name = token.text;
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    const bool is_true_name = name == "true" || name == "True";
    return make(token.position, ConstantExpression{Value::boolean(is_true_name)});
  }
  if (name == "none" || name == "None") {
    return make(token.position, ConstantExpression{Value::none()});
  }
  for (MacroDefinition* macro : macros_) {
    if (name == "varargs") macro->uses_varargs = true;
    if (name == "kwargs") macro->uses_kwargs = true;
    if (name == "caller") macro->uses_caller = true;
  }
  const Value value = Value::string(name, false);
  return make(token.position, NameExpression{intern(name), *value.get_if<StringPointer>()});
}

ExpressionPointer ExpressionParser::parse_string() {
  const Position position = current().position;
  std::string text;
  while (current().kind == TokenKind::string) text += take().text;
  return make(position, ConstantExpression{Value::string(text, false)});
}

ExpressionPointer ExpressionParser::parse_list() {
  const Position position = take().position;
  ListExpression node{{}, ListKind::list};
  while (!take_operator("]")) {
    if (!node.items.empty()) {
      expect_operator(",");
      if (take_operator("]")) break;
    }
    node.items.push_back(parse_expression());
  }
  return make(position, std::move(node));
}

ExpressionPointer ExpressionParser::parse_dict() {
  const Position position = take().position;
  DictExpression node;
  while (!take_operator("}")) {
    if (!node.entries.empty()) {
      expect_operator(",");
      if (take_operator("}")) break;
    }
    ExpressionPointer key = parse_expression();
    expect_operator(":");
    node.entries.emplace_back(std::move(key), parse_expression());
  }
  return make(position, std::move(node));
}

ExpressionPointer ExpressionParser::parse_postfix(ExpressionPointer expression) {
  while (true) {
    if (at_operator(".")) {
      expression = parse_attribute(std::move(expression));
    } else if (at_operator("[")) {
      expression = parse_subscript(std::move(expression));
    } else if (at_operator("(")) {
      expression = parse_call(std::move(expression));
    } else {
      return expression;
    }
  }
}

ExpressionPointer ExpressionParser::parse_filters_and_tests(ExpressionPointer expression) {
  while (true) {
    if (take_operator("|")) {
      expression = parse_filters(std::move(expression));
    } else if (at_name("is")) {
      expression = parse_test(std::move(expression));
    } else if (at_operator("(")) {
      expression = parse_call(std::move(expression));
    } else {
      return expression;
    }
  }
}

ExpressionPointer ExpressionParser::parse_attribute(ExpressionPointer object) {
  const Position position = take().position;
  if (current().kind == TokenKind::integer) {
    ExpressionPointer key = make(position, ConstantExpression{Value::integer(take().integer)});
    return make(position, ItemExpression{std::move(object), std::move(key)});
  }
  const Value name = Value::string(expect_name(), false);
  return make(position, AttributeExpression{std::move(object), *name.get_if<StringPointer>()});
}

ExpressionPointer ExpressionParser::parse_subscript(ExpressionPointer object) {
  const Position position = take().position;
  const auto at_end_of_part = [this] { return at_operator(":") || at_operator("]"); };
  ExpressionPointer begin;
  if (!at_operator(":")) begin = parse_expression();
  if (take_operator("]")) {
    return make(position, ItemExpression{std::move(object), std::move(begin)});
  }
  if (at_operator(",")) {
    throw_at(ErrorKind::unsupported, current().position,
             "a subscript of several parts is not supported");
  }
  SliceExpression slice{std::move(object), std::move(begin), nullptr, nullptr};
  expect_operator(":");
  if (!at_end_of_part()) slice.end = parse_expression();
  if (take_operator(":") && !at_end_of_part()) slice.step = parse_expression();
  expect_operator("]");
  return make(position, std::move(slice));
}

ExpressionPointer ExpressionParser::parse_call(ExpressionPointer callee) {
  const Position position = current().position;
  return make(position, CallExpression{std::move(callee), parse_arguments()});
}

ArgumentExpressions ExpressionParser::parse_arguments() {
  const Nesting nesting(*this);
  ArgumentExpressions arguments;
  expect_operator("(");
  bool is_first = true;
  while (!take_operator(")")) {
    if (!is_first) {
      expect_operator(",");
      if (take_operator(")")) break;
    }
    is_first = false;
    if (arguments.more_keywords != nullptr) fail_unexpected("')' after the argument of '**'");
    if (take_operator("**")) {
      arguments.more_keywords = parse_expression();
      continue;
    }
    if (at_operator("*")) {
      if (arguments.more_positional != nullptr) fail_unexpected("no second '*'");
      take();
      arguments.more_positional = parse_expression();
      continue;
    }
    const bool is_keyword = current().kind == TokenKind::name &&
                            look_ahead().kind == TokenKind::operator_sign &&
                            look_ahead().text == "=";
    if (is_keyword) {
      std::string name = take().text;
      take();
      arguments.keywords.push_back({std::move(name), parse_expression()});
    } else if (!arguments.keywords.empty() || arguments.more_positional != nullptr) {
      fail_unexpected("a named argument after a named argument or '*'");
    } else {
      arguments.positional.push_back(parse_expression());
    }
  }
  return arguments;
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = expect_name();
  while (take_operator(".")) name.append(".").append(expect_name());
  return name;
}

ExpressionPointer ExpressionParser::parse_filters(ExpressionPointer input) {
  do {
    const Position position = current().position;
    const std::string name = parse_dotted_name();
    ArgumentExpressions arguments;
    if (at_operator("(")) arguments = parse_arguments();
    input = make(position,
                 FilterExpression{std::move(input), find_filter(name), name, std::move(arguments)});
  } while (take_operator("|"));
  return input;
}

ExpressionPointer ExpressionParser::parse_test(ExpressionPointer input) {
  take();
  const bool negated = take_name("not");
  const Position position = current().position;
  const std::string name = parse_dotted_name();
  return make(position, TestExpression{std::move(input), find_test(name), name,
                                       parse_test_arguments(), negated});
}

// In brackets, or one operand without them: "is divisibleby 3".
ArgumentExpressions ExpressionParser::parse_test_arguments() {
  if (at_operator("(")) return parse_arguments();
  ArgumentExpressions arguments;
  const TokenKind kind = current().kind;
  const bool is_name =
      kind == TokenKind::name && !at_name("else") && !at_name("or") && !at_name("and");
  if (is_name || kind == TokenKind::string || kind == TokenKind::integer ||
      kind == TokenKind::floating || at_operator("[") || at_operator("{")) {
    if (at_name("is")) fail_unexpected("no second test");
    const Nesting nesting(*this);
    arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  return arguments;
}

}  // namespace octet::jinja
