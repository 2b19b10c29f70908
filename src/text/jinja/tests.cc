// What can follow `is`, and be named in select() and its like.
#include "core/error.h"
#include "text/jinja/builtins.h"
#include "text/jinja/format.h"
#include "text/jinja/letter_case.h"
#include "text/jinja/operators.h"

namespace octet::jinja {
namespace {

template <bool (*check)(const Value& input)>
bool plain_test(Runtime&, const Value& input, const Arguments& arguments) {
  arguments.bind("this test", {});
  return check(input);
}

bool is_defined(const Value& input) { return !input.is_undefined(); }
bool is_undefined(const Value& input) { return input.is_undefined(); }
bool is_none(const Value& input) { return input.is_none(); }
bool is_boolean(const Value& input) { return input.is<bool>(); }
bool is_integer(const Value& input) { return input.is<std::int64_t>(); }
bool is_float(const Value& input) { return input.is<double>(); }
bool is_number(const Value& input) { return input.as_number().has_value(); }
bool is_string(const Value& input) { return input.text() != nullptr; }
bool is_mapping(const Value& input) { return input.as_dict() != nullptr; }
bool is_escaped(const Value& input) { return input.is_markup(); }
bool is_exactly_true(const Value& input) { return input.is<bool>() && is_true(input); }
bool is_exactly_false(const Value& input) { return input.is<bool>() && !is_true(input); }

// Undefined passes these: Jinja's class for it has the methods that they look for.
bool is_sequence(const Value& input) {
  if (const ListObject* list = input.as_list()) {
    return is_list_or_tuple(input) || list->kind == ListKind::range;
  }
  return input.text() != nullptr || input.as_dict() != nullptr || input.is_undefined();
}
bool is_iterable(const Value& input) {
  return is_sequence(input) || input.as_list() != nullptr || input.is<LoopPointer>();
}
bool is_callable(const Value& input) {
  return input.is_undefined() || input.is<MacroPointer>() || input.is<MethodPointer>() ||
         input.is<const BuiltinFunction*>() || input.is<LoopPointer>();
}

template <LetterCase letter_case>
bool test_case(Runtime& runtime, const Value& input, const Arguments& arguments) {
  arguments.bind("this test", {});
  const Value text = to_str(runtime.budget, input);
  return has_case(runtime.budget, *text.text(), letter_case);
}

template <Comparison comparison>
bool test_comparison(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind("this test", {"other"}, 1);
  return compare(comparison, input, *bound[0], runtime.budget);
}

bool divides(Runtime& runtime, const Value& input, const Value& divisor) {
  const Value rest = apply_binary(BinaryOperator::modulo, input, divisor, runtime.budget);
  return !is_true(rest);
}

bool test_divisible(Runtime& runtime, const Value& input, const Arguments& arguments) {
  return divides(runtime, input, *arguments.bind("divisibleby", {"num"}, 1)[0]);
}

template <bool expects_even>
bool test_parity(Runtime& runtime, const Value& input, const Arguments& arguments) {
  arguments.bind("this test", {});
  if (!expects_even) {
    const Value rest =
        apply_binary(BinaryOperator::modulo, input, Value::integer(2), runtime.budget);
    return equal(rest, Value::integer(1), runtime.budget);
  }
  return divides(runtime, input, Value::integer(2));
}

// Python's identity, for what cannot be told apart by it: small values are equal or not.
bool test_same(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Value& other = *arguments.bind("sameas", {"other"}, 1)[0];
  if (input.storage().index() != other.storage().index()) return false;
  if (const auto* list = input.get_if<ListPointer>()) return *list == *other.get_if<ListPointer>();
  if (const auto* dict = input.get_if<DictPointer>()) return *dict == *other.get_if<DictPointer>();
  if (const auto* text = input.get_if<StringPointer>()) {
    return *text == *other.get_if<StringPointer>();
  }
  return equal(input, other, runtime.budget);
}

bool test_filter_name(Runtime&, const Value& input, const Arguments& arguments) {
  arguments.bind("filter", {});
  return input.text() != nullptr && find_filter(input.text()->bytes()) != nullptr;
}

bool test_test_name(Runtime&, const Value& input, const Arguments& arguments) {
  arguments.bind("test", {});
  return input.text() != nullptr && find_test(input.text()->bytes()) != nullptr;
}

constexpr BuiltinTest tests[] = {
    {"!=", test_comparison<Comparison::not_equal>},
    {"<", test_comparison<Comparison::less>},
    {"<=", test_comparison<Comparison::less_equal>},
    {"==", test_comparison<Comparison::equal>},
    {">", test_comparison<Comparison::greater>},
    {">=", test_comparison<Comparison::greater_equal>},
    {"boolean", plain_test<is_boolean>},
    {"callable", plain_test<is_callable>},
    {"defined", plain_test<is_defined>},
    {"divisibleby", test_divisible},
    {"eq", test_comparison<Comparison::equal>},
    {"equalto", test_comparison<Comparison::equal>},
    {"escaped", plain_test<is_escaped>},
    {"even", test_parity<true>},
    {"false", plain_test<is_exactly_false>},
    {"filter", test_filter_name},
    {"float", plain_test<is_float>},
    {"ge", test_comparison<Comparison::greater_equal>},
    {"greaterthan", test_comparison<Comparison::greater>},
    {"gt", test_comparison<Comparison::greater>},
    {"in", test_comparison<Comparison::in>},
    {"integer", plain_test<is_integer>},
    {"iterable", plain_test<is_iterable>},
    {"le", test_comparison<Comparison::less_equal>},
    {"lessthan", test_comparison<Comparison::less>},
    {"lower", test_case<LetterCase::lower>},
    {"lt", test_comparison<Comparison::less>},
    {"mapping", plain_test<is_mapping>},
    {"ne", test_comparison<Comparison::not_equal>},
    {"none", plain_test<is_none>},
    {"number", plain_test<is_number>},
    {"odd", test_parity<false>},
    {"sameas", test_same},
    {"sequence", plain_test<is_sequence>},
    {"string", plain_test<is_string>},
    {"test", test_test_name},
    {"true", plain_test<is_exactly_true>},
    {"undefined", plain_test<is_undefined>},
    {"upper", test_case<LetterCase::upper>},
};

}  // namespace

const BuiltinTest* find_test(std::string_view name) { return find_by_name(tests, name); }

}  // namespace octet::jinja
