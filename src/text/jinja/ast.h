// The tree of a parsed template.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/token.h"
#include "text/jinja/value.h"

namespace octet::jinja {

struct BuiltinFilter;
struct BuiltinTest;
struct Expression;
struct Statement;
using ExpressionPointer = std::unique_ptr<Expression>;
using Body = std::vector<Statement>;

// A variable's name as a number: equal numbers, equal names.
using NameId = int;

struct ConstantExpression {
  Value value;
};
struct NameExpression {
  NameId id;
  StringPointer name;
};
struct ListExpression {
  std::vector<ExpressionPointer> items;
  ListKind kind;  // list or tuple
};
struct DictExpression {
  std::vector<std::pair<ExpressionPointer, ExpressionPointer>> entries;
};
struct AttributeExpression {  // object.name
  ExpressionPointer object;
  StringPointer name;
};
struct ItemExpression {  // object[key]
  ExpressionPointer object;
  ExpressionPointer key;
};
struct SliceExpression {  // object[begin:end:step], each of them optional
  ExpressionPointer object;
  ExpressionPointer begin;
  ExpressionPointer end;
  ExpressionPointer step;
};
struct KeywordArgument {
  std::string name;
  ExpressionPointer value;
};
struct ArgumentExpressions {
  std::vector<ExpressionPointer> positional;
  std::vector<KeywordArgument> keywords;
  ExpressionPointer more_positional;  // after "*"; may be none
  ExpressionPointer more_keywords;    // after "**"; may be none
};
struct CallExpression {
  ExpressionPointer callee;
  ArgumentExpressions arguments;
};
struct FilterExpression {
  ExpressionPointer input;  // none: the body of the block that the filter is for
  // None: octet and perhaps Jinja have none of that name, which matters only where it runs.
  const BuiltinFilter* filter;
  std::string name;
  ArgumentExpressions arguments;
};
struct TestExpression {
  ExpressionPointer input;
  const BuiltinTest* test;  // none: as of a filter
  std::string name;
  ArgumentExpressions arguments;
  bool negated;
};
enum class UnaryOperator { minus, plus, logical_not };
struct UnaryExpression {
  UnaryOperator sign;
  ExpressionPointer operand;
};
enum class BinaryOperator { add, subtract, multiply, divide, floor_divide, modulo, power };
struct BinaryExpression {
  BinaryOperator sign;
  ExpressionPointer left;
  ExpressionPointer right;
};
struct LogicalExpression {  // `and`, `or`: the value of the side that decides
  bool is_and;
  ExpressionPointer left;
  ExpressionPointer right;
};
struct ConcatenationExpression {  // a ~ b ~ c
  std::vector<ExpressionPointer> parts;
};
enum class Comparison { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };
struct ComparisonExpression {  // a < b <= c
  ExpressionPointer first;
  std::vector<std::pair<Comparison, ExpressionPointer>> rest;
};
struct ConditionalExpression {  // value if condition else otherwise
  ExpressionPointer condition;
  ExpressionPointer value;
  ExpressionPointer otherwise;  // none: undefined
};

struct Expression {
  using Node = std::variant<ConstantExpression, NameExpression, ListExpression, DictExpression,
                            AttributeExpression, ItemExpression, SliceExpression, CallExpression,
                            FilterExpression, TestExpression, UnaryExpression, BinaryExpression,
                            LogicalExpression, ConcatenationExpression, ComparisonExpression,
                            ConditionalExpression>;
  Node node;
  Position position;
  int height = 1;  // of the tree below, itself included
};

// What can stand left of "=" or after "for".
struct Target {
  struct Variable {
    NameId id;
  };
  struct NamespaceAttribute {
    NameId id;
    StringPointer name;
    std::string attribute;
  };
  using Tuple = std::vector<Target>;
  std::variant<Variable, NamespaceAttribute, Tuple> node;
  Position position;
};

struct TextStatement {
  std::string text;
};
struct OutputStatement {
  ExpressionPointer value;
};
struct IfStatement {
  std::vector<std::pair<ExpressionPointer, Body>> branches;
  Body otherwise;
};
struct ForStatement {
  Target target;
  ExpressionPointer iterable;
  ExpressionPointer condition;  // none: every item
  bool is_recursive = false;    // `loop(items)` in it runs it for other items
  Body body;
  Body otherwise;  // where no item came
};
struct SetStatement {
  Target target;
  ExpressionPointer value;
};
struct SetBlockStatement {
  Target target;
  ExpressionPointer filter;  // of the body; may be none
  Body body;
};
struct FilterBlockStatement {
  ExpressionPointer filter;
  Body body;
};
struct WithStatement {
  std::vector<std::pair<Target, ExpressionPointer>> variables;
  Body body;
};
struct MacroParameter {
  NameId id;
  std::string name;
  ExpressionPointer default_value;  // may be none
};
struct MacroDefinition {
  StringPointer name;
  std::vector<MacroParameter> parameters;
  Body body;
  // Which of the implicit variables the body names.
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};
struct MacroStatement {
  NameId id;
  std::unique_ptr<MacroDefinition> definition;
};
struct CallBlockStatement {
  ExpressionPointer call;
  std::unique_ptr<MacroDefinition> caller;
};
struct ScopeStatement {  // {% generation %}: a block of its own scope
  Body body;
};
struct BreakStatement {};
struct ContinueStatement {};

struct Statement {
  using Node = std::variant<TextStatement, OutputStatement, IfStatement, ForStatement, SetStatement,
                            SetBlockStatement, FilterBlockStatement, WithStatement, MacroStatement,
                            CallBlockStatement, ScopeStatement, BreakStatement, ContinueStatement>;
  Node node;
  Position position;
};

// The names that the interpreter itself gives or reads.
struct WellKnownNames {
  NameId loop;
  NameId caller;
  NameId varargs;
  NameId kwargs;
};

struct Program {
  Body body;
  std::vector<std::string> names;  // by NameId
  WellKnownNames well_known;
};

}  // namespace octet::jinja
