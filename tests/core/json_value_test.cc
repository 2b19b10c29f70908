#include "core/json_value.h"

#include <chrono>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace octet {
namespace {

JsonValue config() {
  return JsonValue::parse(
      R"({"layers": 4, "negative": -3, "theta": 1e6, "eps": 1e-05, "large": 18446744073709551615,
          "tied": true, "name": "x", "window": null, "eos": [1, 2], "mixed": [1, "a"],
          "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "list": [{"deep": 1}]},
          "words": ["a", "b"], "numbers": [1, 2.5]})",
      "m/config.json");
}

template <typename Call>
void expect_error(Call call, const std::string& message, ErrorKind kind = ErrorKind::bad_input) {
  try {
    call();
    ADD_FAILURE() << "no error, expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    EXPECT_EQ(error.what(), message);
  }
}

TEST(JsonValue, ReadsValuesByKeyAndType) {
  const JsonValue value = config();
  EXPECT_EQ(value.kind(), JsonKind::object);
  EXPECT_EQ(value.find_uint("layers"), 4u);
  EXPECT_EQ(value.require_integer("negative"), -3);
  EXPECT_EQ(value.require_uint("large"), UINT64_MAX);
  EXPECT_EQ(value.require_float("theta"), 1e6);
  EXPECT_EQ(value.require_float("layers"), 4.0);
  EXPECT_EQ(value.find_float("eps"), 1e-5);
  EXPECT_EQ(value.find_bool("tied"), true);
  EXPECT_EQ(value.require_string("name"), "x");
  EXPECT_EQ(value.find_integers("eos"), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(value.find_strings("words"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(value.find_floats("numbers"), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(value.require("rope_scaling").require_float("factor"), 8.0);
  EXPECT_EQ(value.require("rope_scaling").keys(),
            (std::vector<std::string>{"rope_type", "factor", "list"}));
  EXPECT_EQ(value.require("eos").size(), 2u);
  EXPECT_EQ(value.require("eos").at(1).as_integer(), 2);
}

TEST(JsonValue, TakesNullForMissing) {
  const JsonValue value = config();
  EXPECT_FALSE(value.has("window"));
  EXPECT_FALSE(value.has("absent"));
  EXPECT_TRUE(value.has("tied"));
  EXPECT_EQ(value.find_uint("window"), std::nullopt);
  EXPECT_EQ(value.find_uint("absent"), std::nullopt);
  EXPECT_FALSE(value.find("window").has_value());
  expect_error([&] { value.require_uint("window"); }, "m/config.json: key 'window' is missing");
}

TEST(JsonValue, NamesFileAndKeyInErrors) {
  const JsonValue value = config();
  expect_error([&] { value.require_uint("absent"); }, "m/config.json: key 'absent' is missing");
  expect_error(
      [&] { value.find_uint("name"); },
      "m/config.json: key 'name' holds a string, expected an integer that is not negative");
  expect_error([&] { value.find_uint("negative"); },
               "m/config.json: key 'negative' is -3, expected an integer that is not negative");
  expect_error([&] { value.find_uint("theta"); },
               "m/config.json: key 'theta' holds a number with a fraction or exponent, expected an "
               "integer that is not negative");
  expect_error([&] { value.find_integer("large"); },
               "m/config.json: key 'large' is 18446744073709551615, expected an integer of at most "
               "63 bits");
  expect_error([&] { value.find_bool("layers"); },
               "m/config.json: key 'layers' holds an integer, expected true or false");
  expect_error([&] { value.find_float("tied"); },
               "m/config.json: key 'tied' holds a boolean, expected a number");
  expect_error(
      [&] { value.find_integers("mixed"); },
      "m/config.json: key 'mixed[1]' holds a string, expected an integer of at most 63 bits");
  const JsonValue scaling = value.require("rope_scaling");
  EXPECT_EQ(scaling.where(), "m/config.json: key 'rope_scaling'");
  expect_error([&] { scaling.find_float("rope_type"); },
               "m/config.json: key 'rope_scaling.rope_type' holds a string, expected a number");
  expect_error(
      [&] { scaling.require("list").at(0).require_string("deep"); },
      "m/config.json: key 'rope_scaling.list[0].deep' holds an integer, expected a string");
  expect_error([&] { scaling.require("list").at(1); },
               "m/config.json: key 'rope_scaling.list' has 1 elements, expected at least 2");
  expect_error([&] { value.require("layers").find("x"); },
               "m/config.json: key 'layers' holds an integer, expected an object");
  expect_error([] { JsonValue::parse("[]", "c.json").has("x"); },
               "c.json: holds an array, expected an object");
  expect_error(
      [&] {
        scaling.refuse_keys_other_than({"rope_type", "list"});
      },
      "m/config.json: key 'rope_scaling.factor' is unknown to octet", ErrorKind::unsupported);
  scaling.refuse_keys_other_than({"list", "rope_type", "factor"});
}

TEST(JsonValue, KeepsTheTextAliveAndHostileKeysOnOneLine) {
  std::optional<JsonValue> inner;
  { inner = JsonValue::parse(R"({"a\nb": {"c": 1}})", "c.json").find("a\nb"); }
  ASSERT_TRUE(inner.has_value());
  EXPECT_EQ(inner->require_uint("c"), 1u);
  expect_error([&] { inner->require_string("c"); },
               "c.json: key 'a\\x0ab.c' holds an integer, expected a string");
  EXPECT_THROW(JsonValue::parse("{", "c.json"), Error);
}

// Each takes well under a second, and would take hours in time that is quadratic.
TEST(JsonValue, ManyKeysAndLongPathsTakeNoQuadraticTime) {
  const auto start = std::chrono::steady_clock::now();
  std::string text = "{";
  for (int i = 299'999; i >= 0; --i) text += fmt::format("\"k{}\":{},", i, i % 2 ? "null" : "7");
  const JsonValue many = JsonValue::parse(text + "\"last\":1}", "c.json");
  const std::vector<std::string> keys = many.keys();
  ASSERT_EQ(keys.size(), 300'001u);
  EXPECT_EQ(keys.front(), "k299999");
  int given = 0;
  for (const std::string& key : keys) given += many.has(key);
  EXPECT_EQ(given, 150'001);
  EXPECT_EQ(many.require_integer("last"), 1);
  EXPECT_FALSE(many.has("k300000"));
  EXPECT_FALSE(many.has(""));

  text = "{\"" + std::string(4'000'000, 'x') + "\": {\"list\": [1";
  for (int i = 1; i < 1'000'000; ++i) text += ",1";
  const JsonValue deep = JsonValue::parse(text + "], \"mixed\": [1, \"a\"]}}", "c.json");
  const JsonValue inner = deep.require(deep.keys().front());
  EXPECT_EQ(inner.find_integers("list")->size(), 1'000'000u);
  EXPECT_THROW(inner.find_integers("mixed"), Error);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

}  // namespace
}  // namespace octet
