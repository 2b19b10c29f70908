#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "text/jinja/access.h"
#include "text/jinja/format.h"
#include "text/jinja/interpreter_state.h"
#include "text/jinja/operators.h"

namespace octet::jinja {

// Each evaluate_node sets position_ once its operands are done, so that an error names the
// operation.
Value Interpreter::evaluate(const Expression& expression) {
  position_ = expression.position;
  const Level level(*this);
  budget_.step();
  return std::visit(
      [this, &expression](const auto& node) { return evaluate_node(node, expression.position); },
      expression.node);
}

Value Interpreter::evaluate_optional(const ExpressionPointer& expression) {
  return expression == nullptr ? Value::none() : evaluate(*expression);
}

Value Interpreter::evaluate_node(const ConstantExpression& node, Position) { return node.value; }

Value Interpreter::evaluate_node(const NameExpression& node, Position) {
  return look_up(node.id, node.name);
}

Value Interpreter::look_up(NameId id, const StringPointer& name) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent) {
    const auto variable = scope->variables.find(id);
    if (variable != scope->variables.end()) return variable->second;
  }
  const Value& global = globals_[static_cast<std::size_t>(id)];
  if (!global.is_undefined()) return global;
  if (const BuiltinFunction* function = find_function(name->text.bytes())) {
    return Value(Value::Storage(function));
  }
  return Value(Value::Storage(Undefined{name, nullptr}));
}

Value Interpreter::evaluate_node(const ListExpression& node, Position position) {
  std::vector<Value> items;
  for (const ExpressionPointer& item : node.items) budget_.push(items, evaluate(*item));
  position_ = position;
  return budget_.list(std::move(items), node.kind);
}

Value Interpreter::evaluate_node(const DictExpression& node, Position position) {
  std::vector<DictEntry> entries;
  for (const auto& [key, value] : node.entries) {
    Value key_value = evaluate(*key);
    entries.emplace_back(std::move(key_value), evaluate(*value));
  }
  position_ = position;
  return budget_.dict(std::move(entries));
}

Value Interpreter::evaluate_node(const AttributeExpression& node, Position position) {
  const Value object = evaluate(*node.object);
  position_ = position;
  return get_attribute(object, node.name, budget_);
}

Value Interpreter::evaluate_node(const ItemExpression& node, Position position) {
  const Value object = evaluate(*node.object);
  const Value key = evaluate(*node.key);
  position_ = position;
  return get_item(object, key, budget_);
}

Value Interpreter::evaluate_node(const SliceExpression& node, Position position) {
  const Value object = evaluate(*node.object);
  const Value begin = evaluate_optional(node.begin);
  const Value end = evaluate_optional(node.end);
  const Value step = evaluate_optional(node.step);
  position_ = position;
  return get_slice(object, begin, end, step, budget_);
}

Arguments Interpreter::evaluate_arguments(const ArgumentExpressions& expressions) {
  Arguments arguments;
  for (const ExpressionPointer& expression : expressions.positional) {
    arguments.positional.push_back(evaluate(*expression));
  }
  if (expressions.more_positional != nullptr) {
    const Value more = evaluate(*expressions.more_positional);
    for (Value& item : items_of(more, budget_)) arguments.positional.push_back(std::move(item));
  }
  for (const KeywordArgument& keyword : expressions.keywords) {
    arguments.keywords.emplace_back(keyword.name, evaluate(*keyword.value));
  }
  if (expressions.more_keywords != nullptr) {
    add_keywords(arguments, evaluate(*expressions.more_keywords));
  }
  return arguments;
}

void Interpreter::add_keywords(Arguments& arguments, const Value& more) {
  const DictObject* dict = more.as_dict();
  if (dict == nullptr) throw_bad_input("'**' needs a dict, not a {}", more.type_name());
  // Named arguments are looked up one after the other.
  if (dict->entries().size() > max_keywords) {
    throw_bad_input("'**' gives more than {} named arguments", max_keywords);
  }
  for (const auto& [key, value] : dict->entries()) {
    budget_.step();
    const std::string& name = text_argument("'**'", key).bytes();
    if (arguments.find_keyword(name) != nullptr) {
      throw_bad_input("'**' gives the argument '{}' once more", printable(name));
    }
    arguments.keywords.emplace_back(name, value);
  }
}

Value Interpreter::evaluate_node(const CallExpression& node, Position position) {
  const Value callee = evaluate(*node.callee);
  Arguments arguments = evaluate_arguments(node.arguments);
  position_ = position;
  return call(callee, std::move(arguments));
}

Value Interpreter::evaluate_node(const FilterExpression& node, Position position) {
  const Value input = node.input == nullptr ? std::move(block_text_) : evaluate(*node.input);
  const Arguments arguments = evaluate_arguments(node.arguments);
  position_ = position;
  if (node.filter == nullptr) throw_unsupported("the filter '{}' is not supported", node.name);
  return node.filter->apply(runtime_, input, arguments);
}

Value Interpreter::evaluate_node(const TestExpression& node, Position position) {
  const Value input = evaluate(*node.input);
  const Arguments arguments = evaluate_arguments(node.arguments);
  position_ = position;
  if (node.test == nullptr) throw_unsupported("the test '{}' is not supported", node.name);
  return Value::boolean(node.test->apply(runtime_, input, arguments) != node.negated);
}

Value Interpreter::evaluate_node(const UnaryExpression& node, Position position) {
  const Value operand = evaluate(*node.operand);
  position_ = position;
  return apply_unary(node.sign, operand);
}

Value Interpreter::evaluate_node(const BinaryExpression& node, Position position) {
  const Value left = evaluate(*node.left);
  const Value right = evaluate(*node.right);
  position_ = position;
  return apply_binary(node.sign, left, right, budget_);
}

Value Interpreter::evaluate_node(const LogicalExpression& node, Position) {
  Value left = evaluate(*node.left);
  return is_true(left) == node.is_and ? evaluate(*node.right) : left;
}

Value Interpreter::evaluate_node(const ConcatenationExpression& node, Position position) {
  TextBuilder out(budget_);
  for (const ExpressionPointer& part : node.parts) {
    const Value value = evaluate(*part);
    position_ = position;
    append_str(out, value);
  }
  return out.finish();
}

Value Interpreter::evaluate_node(const ComparisonExpression& node, Position position) {
  Value left = evaluate(*node.first);
  for (const auto& [comparison, operand] : node.rest) {
    Value right = evaluate(*operand);
    position_ = position;
    if (!compare(comparison, left, right, budget_)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_node(const ConditionalExpression& node, Position) {
  if (is_true(evaluate(*node.condition))) return evaluate(*node.value);
  if (node.otherwise != nullptr) return evaluate(*node.otherwise);
  return Value(Value::Storage(Undefined{nullptr, "an inline 'if' was false and has no 'else'"}));
}

Value Interpreter::call(const Value& callee, Arguments arguments) {
  if (const MacroPointer* macro = callee.get_if<MacroPointer>()) {
    return call_macro(**macro, std::move(arguments));
  }
  if (const auto* function = callee.get_if<const BuiltinFunction*>()) {
    return (*function)->apply(runtime_, arguments);
  }
  if (const MethodPointer* method = callee.get_if<MethodPointer>()) {
    const auto& [object, builtin, depth, charge] = **method;
    if (builtin->apply == nullptr) {
      throw_unsupported("the method '{}' of a {} is not supported", builtin->name,
                        object.type_name());
    }
    return call_method(runtime_, object, *builtin, arguments);
  }
  if (const LoopPointer* loop = callee.get_if<LoopPointer>()) return call_loop(**loop, arguments);
  if (const Undefined* undefined = callee.get_if<Undefined>()) throw_undefined(*undefined);
  throw_bad_input("a {} cannot be called", callee.type_name());
}

Value Interpreter::call_loop(const LoopObject& loop, const Arguments& arguments) {
  if (loop.statement == nullptr) throw_bad_input("'loop' can be called in a recursive loop only");
  const auto bound = arguments.bind("loop()", {"iterable"}, 1);
  const std::shared_ptr<const Scope> scope = loop.scope.lock();
  if (scope == nullptr) {
    throw_unsupported("calling a loop outside of the block that it stands in is not supported");
  }
  const InnerScope inner(*this, scope.get());
  TextBuilder text(budget_);
  TextBuilder* outer = std::exchange(out_, &text);
  run_loop(*loop.statement, *bound[0], scope, loop.recursion + 1);
  out_ = outer;
  return text.finish();
}

Value Interpreter::call_macro(const MacroObject& macro, Arguments arguments) {
  const MacroDefinition& definition = *macro.definition;
  const std::shared_ptr<const Scope> scope = macro.scope.lock();
  if (scope == nullptr) {
    throw_unsupported(
        "calling the macro '{}' outside of the block that defines it is not supported",
        definition.name->text.bytes());
  }
  const InnerScope inner(*this, scope.get());
  bind_parameters(definition, std::move(arguments));
  TextBuilder text(budget_);
  TextBuilder* outer = std::exchange(out_, &text);
  execute(definition.body);
  out_ = outer;
  return text.finish();
}

void Interpreter::bind_parameters(const MacroDefinition& definition, Arguments arguments) {
  const std::string& macro = definition.name->text.bytes();
  std::map<NameId, Value>& variables = scope_->variables;
  std::vector<std::pair<std::string, Value>>& keywords = arguments.keywords;
  const auto take_keyword = [&keywords](std::string_view name, Value& value) {
    const auto found = std::find_if(keywords.begin(), keywords.end(),
                                    [name](const auto& keyword) { return keyword.first == name; });
    if (found == keywords.end()) return false;
    value = std::move(found->second);
    keywords.erase(found);
    return true;
  };
  for (std::size_t i = 0; i < definition.parameters.size(); ++i) {
    const MacroParameter& parameter = definition.parameters[i];
    Value value;
    if (i < arguments.positional.size()) {
      value = std::move(arguments.positional[i]);
    } else if (!take_keyword(parameter.name, value) && parameter.default_value != nullptr) {
      value = evaluate(*parameter.default_value);
    }
    variables[parameter.id] = std::move(value);
  }
  const std::size_t taken = std::min(definition.parameters.size(), arguments.positional.size());
  if (definition.uses_caller && variables.count(program_.well_known.caller) == 0) {
    Value caller(Value::Storage(Undefined{nullptr, "no caller is defined"}));
    take_keyword("caller", caller);
    variables[program_.well_known.caller] = std::move(caller);
  }
  if (definition.uses_varargs) {
    std::vector<Value> rest(
        std::make_move_iterator(arguments.positional.begin() + static_cast<std::ptrdiff_t>(taken)),
        std::make_move_iterator(arguments.positional.end()));
    variables[program_.well_known.varargs] = budget_.list(std::move(rest), ListKind::tuple);
  } else if (taken < arguments.positional.size()) {
    throw_bad_input("the macro '{}' takes at most {} arguments", macro, taken);
  }
  if (definition.uses_kwargs) {
    std::vector<DictEntry> entries;
    for (auto& [name, value] : keywords) {
      entries.emplace_back(budget_.string(name), std::move(value));
    }
    variables[program_.well_known.kwargs] = budget_.dict(std::move(entries));
  } else if (!keywords.empty()) {
    throw_bad_input("the macro '{}' has no argument '{}'", macro, keywords.front().first);
  }
}

}  // namespace octet::jinja
