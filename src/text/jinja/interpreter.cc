#include "text/jinja/interpreter.h"

#include <utility>

#include "core/error.h"
#include "text/jinja/access.h"
#include "text/jinja/format.h"
#include "text/jinja/interpreter_state.h"
#include "text/jinja/lexer.h"

namespace octet::jinja {

Interpreter::Level::Level(Interpreter& interpreter) : interpreter_(interpreter) {
  if (interpreter_.depth_ >= max_evaluation_depth) {
    throw_bad_input("the template runs more than {} levels deep", max_evaluation_depth);
  }
  ++interpreter_.depth_;
}

Interpreter::InnerScope::InnerScope(Interpreter& interpreter, const Scope* parent)
    : interpreter_(interpreter), outer_(std::move(interpreter.scope_)) {
  interpreter_.scope_ = std::make_shared<Scope>();
  interpreter_.scope_->parent = parent;
}

Interpreter::Interpreter(const Program& program, const Variables& variables, const std::tm& now)
    : program_(program),
      runtime_{budget_, now, {}, {}},
      globals_(program.names.size()),
      scope_(std::make_shared<Scope>()) {
  for (std::size_t id = 0; id < program.names.size(); ++id) {
    for (const auto& [name, value] : variables) {
      if (name == program.names[id]) globals_[id] = value;
    }
  }
}

MarkedText Interpreter::run() {
  try {
    TextBuilder out(budget_, max_output_bytes, "the output");
    out_ = &out;
    execute(program_.body);
    return out.text();
  } catch (const Error& error) {
    throw_at(error.kind(), position_, error.what());
  }
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  for (const Statement& statement : body) {
    const Flow flow = execute(statement);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  position_ = statement.position;
  const Level level(*this);
  budget_.step();
  return std::visit([this](const auto& node) { return execute_node(node); }, statement.node);
}

Interpreter::Flow Interpreter::execute_node(const TextStatement& node) {
  out_->append(node.text);
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_node(const OutputStatement& node) {
  const Value value = evaluate(*node.value);
  position_ = node.value->position;
  append_str(*out_, value);
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_node(const IfStatement& node) {
  for (const auto& [condition, body] : node.branches) {
    if (is_true(evaluate(*condition))) return execute(body);
  }
  return execute(node.otherwise);
}

Interpreter::Flow Interpreter::execute_node(const ForStatement& node) {
  return run_loop(node, evaluate(*node.iterable), scope_, 0);
}

Interpreter::Flow Interpreter::run_loop(const ForStatement& node, const Value& iterable,
                                        const std::shared_ptr<const Scope>& scope, int recursion) {
  auto loop = std::make_shared<LoopObject>();
  loop->items = loop_items(node, iterable);
  loop->charge = budget_.charge(sizeof(LoopObject));
  if (node.is_recursive) {
    loop->statement = &node;
    loop->scope = scope;
    loop->recursion = recursion;
  }
  const std::vector<Value>& items = loop->items->items;
  if (items.empty()) {
    const InnerScope inner(*this);
    return execute(node.otherwise);
  }
  const Value loop_value{Value::Storage(LoopPointer(loop))};
  for (std::size_t i = 0; i < items.size(); ++i) {
    budget_.step();
    loop->index = i;
    const InnerScope inner(*this);
    scope_->variables[program_.well_known.loop] = loop_value;
    assign(node.target, items[i]);
    if (execute(node.body) == Flow::break_loop) break;
  }
  runtime_.last_changed.erase(loop.get());
  return Flow::normal;
}

ListPointer Interpreter::loop_items(const ForStatement& node, Value iterable) {
  const ListObject* list = iterable.as_list();
  if (list == nullptr || list->kind == ListKind::generator) {
    iterable = budget_.list(items_of(iterable, budget_));
  }
  if (node.condition != nullptr) {
    std::vector<Value> items;
    for (const Value& item : iterable.as_list()->items) {
      const InnerScope inner(*this);
      assign(node.target, item);
      if (is_true(evaluate(*node.condition))) budget_.push(items, item);
    }
    iterable = budget_.list(std::move(items));
  }
  return *iterable.get_if<ListPointer>();
}

Interpreter::Flow Interpreter::execute_node(const SetStatement& node) {
  const Value value = evaluate(*node.value);
  assign(node.target, value);
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_node(const SetBlockStatement& node) {
  Flow flow = Flow::normal;
  Value value = capture(node.body, flow);
  if (flow != Flow::normal) return flow;
  if (node.filter != nullptr) {
    block_text_ = std::move(value);
    value = evaluate(*node.filter);
  }
  assign(node.target, value);
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_node(const FilterBlockStatement& node) {
  Flow flow = Flow::normal;
  Value text = capture(node.body, flow);
  if (flow != Flow::normal) return flow;
  block_text_ = std::move(text);
  append_str(*out_, evaluate(*node.filter));
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_node(const WithStatement& node) {
  // Each value is evaluated outside of the new scope.
  std::vector<Value> values;
  for (const auto& [target, expression] : node.variables) values.push_back(evaluate(*expression));
  const InnerScope inner(*this);
  for (std::size_t i = 0; i < values.size(); ++i) assign(node.variables[i].first, values[i]);
  return execute(node.body);
}

Interpreter::Flow Interpreter::execute_node(const MacroStatement& node) {
  scope_->variables[node.id] = make_macro(*node.definition);
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_node(const CallBlockStatement& node) {
  const auto& expression = std::get<CallExpression>(node.call->node);
  const Value callee = evaluate(*expression.callee);
  Arguments arguments = evaluate_arguments(expression.arguments);
  arguments.keywords.emplace_back("caller", make_macro(*node.caller));
  append_str(*out_, call(callee, std::move(arguments)));
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_node(const ScopeStatement& node) {
  const InnerScope inner(*this);
  return execute(node.body);
}

Value Interpreter::capture(const Body& body, Flow& flow) {
  const InnerScope inner(*this);
  TextBuilder text(budget_);
  TextBuilder* outer = std::exchange(out_, &text);
  flow = execute(body);
  out_ = outer;
  return text.finish();
}

void Interpreter::assign(const Target& target, const Value& value) {
  position_ = target.position;
  if (const auto* variable = std::get_if<Target::Variable>(&target.node)) {
    scope_->variables[variable->id] = value;
  } else if (const auto* attribute = std::get_if<Target::NamespaceAttribute>(&target.node)) {
    const Value object = look_up(attribute->id, attribute->name);
    NamespaceObject* const* space = object.get_if<NamespaceObject*>();
    if (space == nullptr) {
      throw_bad_input("only a namespace has attributes to set, and '{}' is none",
                      attribute->name->text.bytes());
    }
    set_attribute(runtime_, **space, attribute->attribute, value);
  } else {
    assign_tuple(std::get<Target::Tuple>(target.node), value);
  }
}

void Interpreter::assign_tuple(const Target::Tuple& targets, const Value& value) {
  const std::vector<Value> items = items_of(value, budget_);
  if (items.size() != targets.size()) {
    throw_bad_input("{} values cannot be assigned to {} names", items.size(), targets.size());
  }
  for (std::size_t i = 0; i < items.size(); ++i) assign(targets[i], items[i]);
}

Value Interpreter::make_macro(const MacroDefinition& definition) {
  return Value(Value::Storage(std::make_shared<const MacroObject>(
      MacroObject{&definition, scope_, budget_.charge(sizeof(MacroObject))})));
}

Value macro_attribute(const MacroObject& macro, std::string_view name, bool& found,
                      Budget& budget) {
  const MacroDefinition& definition = *macro.definition;
  if (name == "name") return Value(Value::Storage(definition.name));
  if (name == "catch_kwargs") return Value::boolean(definition.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(definition.uses_varargs);
  if (name == "caller") return Value::boolean(definition.uses_caller);
  if (name == "arguments") {
    std::vector<Value> names;
    for (const MacroParameter& parameter : definition.parameters) {
      budget.push(names, budget.string(parameter.name));
    }
    return budget.list(std::move(names), ListKind::tuple);
  }
  found = false;
  return Value();
}

MarkedText render(const Program& program, const Variables& variables, const std::tm& now) {
  return Interpreter(program, variables, now).run();
}

}  // namespace octet::jinja
