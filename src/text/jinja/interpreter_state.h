// The inside of the interpreter: expressions are in evaluate.cc, statements in interpreter.cc.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/budget.h"
#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"

namespace octet::jinja {

// The variables of a block. A name is looked up from the innermost scope outwards.
struct Scope {
  std::map<NameId, Value> variables;
  const Scope* parent = nullptr;
};

struct MacroObject {
  const MacroDefinition* definition;
  // Where it was defined and its free names are looked up; weak, since that scope holds the macro.
  std::weak_ptr<const Scope> scope;
  Charge charge;
};

class Interpreter {
 public:
  Interpreter(const Program& program, const Variables& variables, const std::tm& now);

  MarkedText run();

 private:
  // How a statement ended: `break` and `continue` travel up to their loop.
  enum class Flow { normal, break_loop, continue_loop };

  // Counts one level of recursion while it lives.
  class Level {
   public:
    explicit Level(Interpreter& interpreter);
    ~Level() { --interpreter_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Interpreter& interpreter_;
  };

  // A scope inside the current one, or inside `parent`, while it lives.
  class InnerScope {
   public:
    explicit InnerScope(Interpreter& interpreter)
        : InnerScope(interpreter, interpreter.scope_.get()) {}
    InnerScope(Interpreter& interpreter, const Scope* parent);
    ~InnerScope() { interpreter_.scope_ = std::move(outer_); }
    InnerScope(const InnerScope&) = delete;
    InnerScope& operator=(const InnerScope&) = delete;

   private:
    Interpreter& interpreter_;
    std::shared_ptr<Scope> outer_;
  };

  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow execute_node(const TextStatement& node);
  Flow execute_node(const OutputStatement& node);
  Flow execute_node(const IfStatement& node);
  Flow execute_node(const ForStatement& node);
  Flow execute_node(const SetStatement& node);
  Flow execute_node(const SetBlockStatement& node);
  Flow execute_node(const FilterBlockStatement& node);
  Flow execute_node(const WithStatement& node);
  Flow execute_node(const MacroStatement& node);
  Flow execute_node(const CallBlockStatement& node);
  Flow execute_node(const ScopeStatement& node);
  Flow execute_node(const BreakStatement&) { return Flow::break_loop; }
  Flow execute_node(const ContinueStatement&) { return Flow::continue_loop; }

  // The text that a body writes, in a scope of its own.
  Value capture(const Body& body, Flow& flow);
  // `scope`: around the loop, where a recursive one runs again.
  Flow run_loop(const ForStatement& node, const Value& iterable,
                const std::shared_ptr<const Scope>& scope, int recursion);
  ListPointer loop_items(const ForStatement& node, Value iterable);
  void assign(const Target& target, const Value& value);
  void assign_tuple(const Target::Tuple& targets, const Value& value);
  Value make_macro(const MacroDefinition& definition);

  Value evaluate(const Expression& expression);
  Value evaluate_node(const ConstantExpression& node, Position position);
  Value evaluate_node(const NameExpression& node, Position position);
  Value evaluate_node(const ListExpression& node, Position position);
  Value evaluate_node(const DictExpression& node, Position position);
  Value evaluate_node(const AttributeExpression& node, Position position);
  Value evaluate_node(const ItemExpression& node, Position position);
  Value evaluate_node(const SliceExpression& node, Position position);
  Value evaluate_node(const CallExpression& node, Position position);
  Value evaluate_node(const FilterExpression& node, Position position);
  Value evaluate_node(const TestExpression& node, Position position);
  Value evaluate_node(const UnaryExpression& node, Position position);
  Value evaluate_node(const BinaryExpression& node, Position position);
  Value evaluate_node(const LogicalExpression& node, Position position);
  Value evaluate_node(const ConcatenationExpression& node, Position position);
  Value evaluate_node(const ComparisonExpression& node, Position position);
  Value evaluate_node(const ConditionalExpression& node, Position position);

  Value evaluate_optional(const ExpressionPointer& expression);  // none where there is none
  Arguments evaluate_arguments(const ArgumentExpressions& arguments);
  Value look_up(NameId id, const StringPointer& name) const;
  Value call(const Value& callee, Arguments arguments);
  Value call_loop(const LoopObject& loop, const Arguments& arguments);
  void add_keywords(Arguments& arguments, const Value& more);
  Value call_macro(const MacroObject& macro, Arguments arguments);
  void bind_parameters(const MacroDefinition& definition, Arguments arguments);

  const Program& program_;
  Budget budget_;  // first in, last out: every value gives its bytes back to it
  Runtime runtime_;
  std::vector<Value> globals_;  // by NameId; undefined: no variable of that name was given
  std::shared_ptr<Scope> scope_;
  TextBuilder* out_ = nullptr;
  Value block_text_;   // the input of a filter on a block
  Position position_;  // of what is being done, for errors
  int depth_ = 0;
};

}  // namespace octet::jinja
