#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/text_operations.h"

namespace octet::jinja {
namespace {

[[noreturn]] void throw_overflow() {
  throw_bad_input("a number of the template is beyond 64 bits");
}

[[noreturn]] void throw_operands(std::string_view sign, const Value& left, const Value& right) {
  for (const Value* side : {&left, &right}) {
    if (const Undefined* undefined = side->get_if<Undefined>()) throw_undefined(*undefined);
  }
  throw_bad_input("'{}' cannot take a {} and a {}", sign, left.type_name(), right.type_name());
}

std::string_view spelling(BinaryOperator sign) {
  static constexpr std::string_view spellings[] = {"+", "-", "*", "/", "//", "%", "**"};
  return spellings[static_cast<int>(sign)];
}

std::int64_t checked_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) throw_overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) throw_overflow();
  }
  return result;
}

// Rounds to minus infinity, as Python does; the divisor is not 0.
std::int64_t floor_divide(std::int64_t left, std::int64_t right) {
  if (right == -1) {
    std::int64_t result = 0;
    if (__builtin_sub_overflow(std::int64_t{0}, left, &result)) throw_overflow();
    return result;
  }
  const std::int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

std::int64_t modulo(std::int64_t left, std::int64_t right) {
  if (right == -1) return 0;
  const std::int64_t remainder = left % right;
  return remainder != 0 && (remainder < 0) != (right < 0) ? remainder + right : remainder;
}

double modulo(double left, double right) {
  const double remainder = std::fmod(left, right);
  if (remainder == 0) return std::copysign(0.0, right);
  return (remainder < 0) != (right < 0) ? remainder + right : remainder;
}

double floor_divide(double left, double right) {
  const double quotient = (left - modulo(left, right)) / right;
  if (quotient == 0) return std::copysign(0.0, left / right);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value power(double left, double right) {
  if (left == 0 && right < 0) throw_bad_input("0 has no negative power");
  const double result = std::pow(left, right);
  if (std::isnan(result) && !std::isnan(left) && !std::isnan(right)) {
    throw_bad_input("a negative number has no power that is not whole");
  }
  if (std::isinf(result) && !std::isinf(left) && !std::isinf(right)) throw_overflow();
  return Value::floating(result);
}

Value apply_integers(BinaryOperator sign, std::int64_t left, std::int64_t right) {
  std::int64_t result = 0;
  bool overflows = false;
  switch (sign) {
    case BinaryOperator::add:
      overflows = __builtin_add_overflow(left, right, &result);
      break;
    case BinaryOperator::subtract:
      overflows = __builtin_sub_overflow(left, right, &result);
      break;
    case BinaryOperator::multiply:
      overflows = __builtin_mul_overflow(left, right, &result);
      break;
    case BinaryOperator::divide:
      return Value::floating(static_cast<double>(left) / static_cast<double>(right));
    case BinaryOperator::floor_divide:
      result = floor_divide(left, right);
      break;
    case BinaryOperator::modulo:
      result = modulo(left, right);
      break;
    case BinaryOperator::power:
      if (right < 0) return power(static_cast<double>(left), static_cast<double>(right));
      result = checked_power(left, right);
      break;
  }
  if (overflows) throw_overflow();
  return Value::integer(result);
}

Value apply_floats(BinaryOperator sign, double left, double right) {
  switch (sign) {
    case BinaryOperator::add:
      return Value::floating(left + right);
    case BinaryOperator::subtract:
      return Value::floating(left - right);
    case BinaryOperator::multiply:
      return Value::floating(left * right);
    case BinaryOperator::divide:
      return Value::floating(left / right);
    case BinaryOperator::floor_divide:
      return Value::floating(floor_divide(left, right));
    case BinaryOperator::modulo:
      return Value::floating(modulo(left, right));
    case BinaryOperator::power:
      break;
  }
  return power(left, right);
}

Value apply_numbers(BinaryOperator sign, const Value& left, const Value& right) {
  const bool divides = sign == BinaryOperator::divide || sign == BinaryOperator::floor_divide ||
                       sign == BinaryOperator::modulo;
  if (divides && *right.as_number() == 0) throw_bad_input("the template divides by 0");
  if (left.as_integer() && right.as_integer()) {
    return apply_integers(sign, *left.as_integer(), *right.as_integer());
  }
  return apply_floats(sign, *left.as_number(), *right.as_number());
}

// What `size` elements `count` times make, held to `limit` before anything is built.
std::size_t repeated_size(std::size_t size, std::int64_t count, std::size_t limit) {
  if (count <= 0 || size == 0) return 0;
  if (static_cast<std::uint64_t>(count) > limit / size) {
    throw_bad_input("the template repeats a string or list beyond {} bytes or items", limit);
  }
  return size * static_cast<std::size_t>(count);
}

Value repeat(const Value& value, std::int64_t count, Budget& budget) {
  if (const MarkedText* text = value.text()) {
    TextBuilder out(budget);
    const std::size_t size = repeated_size(text->size(), count, max_string_bytes);
    while (out.text().size() < size) out.append(*text);
    return out.finish(value.is_markup());
  }
  const ListObject& list = *value.as_list();
  const std::size_t size = repeated_size(list.items.size(), count, max_list_items);
  std::vector<Value> items;
  items.reserve(size);
  while (items.size() < size) budget.push(items, list.items[items.size() % list.items.size()]);
  return budget.list(std::move(items), plain_kind(list.kind));
}

// Where one side is Markup the other is escaped, and Markup is what comes out.
Value join_texts(const Value& left, const Value& right, Budget& budget) {
  const bool markup = left.is_markup() || right.is_markup();
  TextBuilder out(budget);
  for (const Value* side : {&left, &right}) {
    if (markup && !side->is_markup()) {
      const Value escaped = escape(budget, *side->text());
      out.append(*escaped.text());
    } else {
      out.append(*side->text());
    }
  }
  return out.finish(markup);
}

Value concatenate_lists(const ListObject& left, const ListObject& right, Budget& budget) {
  std::vector<Value> items;
  items.reserve(left.items.size() + right.items.size());
  for (const ListObject* list : {&left, &right}) {
    for (const Value& item : list->items) budget.push(items, item);
  }
  return budget.list(std::move(items), plain_kind(left.kind));
}

}  // namespace

Value apply_unary(UnaryOperator sign, const Value& operand) {
  if (sign == UnaryOperator::logical_not) return Value::boolean(!is_true(operand));
  if (const double* number = operand.get_if<double>()) {
    return Value::floating(sign == UnaryOperator::minus ? -*number : *number);
  }
  const std::optional<std::int64_t> integer = operand.as_integer();
  if (!integer) throw_operands(sign == UnaryOperator::minus ? "-" : "+", operand, operand);
  if (sign == UnaryOperator::plus) return Value::integer(*integer);
  if (*integer == std::numeric_limits<std::int64_t>::min()) throw_overflow();
  return Value::integer(-*integer);
}

Value apply_binary(BinaryOperator sign, const Value& left, const Value& right, Budget& budget) {
  if (left.as_number() && right.as_number()) return apply_numbers(sign, left, right);
  if (sign == BinaryOperator::add) {
    if (left.text() != nullptr && right.text() != nullptr) {
      return join_texts(left, right, budget);
    }
    if (is_list_or_tuple(left) && is_list_or_tuple(right) &&
        plain_kind(left.as_list()->kind) == plain_kind(right.as_list()->kind)) {
      return concatenate_lists(*left.as_list(), *right.as_list(), budget);
    }
  }
  const auto is_repeatable = [](const Value& value) {
    return value.text() != nullptr || is_list_or_tuple(value);
  };
  if (sign == BinaryOperator::multiply) {
    if (is_repeatable(left) && right.as_integer()) return repeat(left, *right.as_integer(), budget);
    if (is_repeatable(right) && left.as_integer()) return repeat(right, *left.as_integer(), budget);
  }
  if (sign == BinaryOperator::modulo && left.text() != nullptr) {
    return percent_format(budget, left, right);
  }
  throw_operands(spelling(sign), left, right);
}

bool compare(Comparison comparison, const Value& left, const Value& right, Budget& budget) {
  switch (comparison) {
    case Comparison::equal:
      return equal(left, right, budget);
    case Comparison::not_equal:
      return !equal(left, right, budget);
    case Comparison::less:
      return order(left, right, budget) < 0;
    case Comparison::less_equal:
      return order(left, right, budget) <= 0;
    case Comparison::greater:
      return order(left, right, budget) > 0;
    case Comparison::greater_equal:
      return order(left, right, budget) >= 0;
    case Comparison::in:
      return contains(right, left, budget);
    case Comparison::not_in:
      break;
  }
  return !contains(right, left, budget);
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (const MarkedText* text = container.text()) {
    if (item.text() == nullptr) throw_operands("in", item, container);
    return find(budget, text->bytes(), item.text()->bytes()).has_value();
  }
  if (const DictObject* dict = container.as_dict()) return dict->find(item) != nullptr;
  if (const ListObject* list = container.as_list()) {
    std::size_t& consumed = list->consumed;
    const bool is_generator = list->kind == ListKind::generator;
    for (std::size_t i = is_generator ? consumed : 0; i < list->items.size(); ++i) {
      if (is_generator) consumed = i + 1;
      if (equal(list->items[i], item, budget)) return true;
    }
    return false;
  }
  if (container.is_undefined()) return false;
  throw_bad_input("'in' cannot look into a {}", container.type_name());
}

}  // namespace octet::jinja
