#include "core/json.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace octet {
namespace {

// Expects `text` to be refused with a message that starts with the source's name and holds `part`.
void expect_refused(const std::string& text, const std::string& part,
                    const JsonLimits& limits = {}) {
  try {
    parse_json(text, "config.json", limits);
    FAIL() << "accepted " << text.substr(0, 60);
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_EQ(message.rfind("config.json: ", 0), 0u) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_LT(message.size(), 300u) << message;
  }
}

std::string repeated(const std::string& part, int times) {
  std::string text;
  text.reserve(part.size() * static_cast<std::size_t>(times));
  for (int time = 0; time < times; ++time) text += part;
  return text;
}

TEST(ParseJson, ReadsEveryKindOfValueAndKeepsTheOrderOfKeys) {
  const Json value = parse_json(
      R"({"z": 1, "a": [-2, 18446744073709551615, 1.5, true, false, null], "m": {"e": {}},
          "s": "\u00e9\ud83d\ude42\n\u0000"})",
      "config.json");
  ASSERT_TRUE(value.is_object());
  std::vector<std::string> keys;
  for (const auto& item : value.items()) keys.push_back(item.key());
  EXPECT_EQ(keys, (std::vector<std::string>{"z", "a", "m", "s"}));
  EXPECT_EQ(value["z"].get<int>(), 1);
  EXPECT_EQ(value["a"][0].get<int>(), -2);
  EXPECT_EQ(value["a"][1].get<std::uint64_t>(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(value["a"][2].get<double>(), 1.5);
  EXPECT_TRUE(value["a"][3].get<bool>());
  EXPECT_TRUE(value["a"][5].is_null());
  EXPECT_TRUE(value["m"]["e"].empty());
  EXPECT_EQ(value["s"].get<std::string>(), std::string("\xC3\xA9\xF0\x9F\x99\x82\n\0", 8));
  EXPECT_EQ(parse_json(" \"x\" ", "text").get<std::string>(), "x");
}

TEST(ParseJson, AgreesWithTheLibraryOnSiblingsAfterNestedContainers) {
  const std::string text =
      R"([[1,[2,{"a":[3,{"b":4}],"c":5}],6],{"d":{"e":[]},"f":[[],[7]]},8,"nine"])";
  EXPECT_EQ(parse_json(text, "text"), Json::parse(text));
  EXPECT_EQ(dump_json(parse_json(text, "text")), text);
}

TEST(ParseJson, TakesDepthUpToTheLimit) {
  EXPECT_EQ(parse_json(repeated("[", 64) + repeated("]", 64), "text").size(), 1u);
  expect_refused(repeated("[", 65) + repeated("]", 65), "deeper than 64");
  expect_refused(repeated("[", 3000) + repeated("]", 3000), "deeper than 64");
  expect_refused(repeated("[", 100'000), "deeper than 64");
  expect_refused(repeated("{\"a\":", 100'000), "deeper than 64");
  JsonLimits shallow;
  shallow.max_depth = 1;
  EXPECT_EQ(parse_json("[1]", "text", shallow).size(), 1u);
  expect_refused("[[]]", "deeper than 1", shallow);
}

TEST(ParseJson, RefusesMoreBytesThanTheLimit) {
  JsonLimits small;
  small.max_bytes = 5;
  EXPECT_EQ(parse_json("[1,2]", "text", small).size(), 2u);
  expect_refused("[1,2] ", "has 6 bytes of JSON, expected at most 5", small);
}

TEST(ParseJson, RefusesWhatIsNotJson) {
  expect_refused("", "is not valid JSON");
  expect_refused("   ", "is not valid JSON");
  expect_refused("NaN", "is not valid JSON");
  expect_refused("[NaN]", "is not valid JSON");
  expect_refused("[Infinity]", "is not valid JSON");
  expect_refused("[1,]", "is not valid JSON");
  expect_refused("{'a':1}", "is not valid JSON");
  expect_refused("{\"a\":1", "is not valid JSON");
  expect_refused("[1] [2]", "is not valid JSON");
  expect_refused("[1]\x01", "is not valid JSON");
  expect_refused("// note\n[1]", "is not valid JSON");
  expect_refused("[01]", "is not valid JSON");
  expect_refused("\"\\ud800\"", "is not valid JSON");
  expect_refused("\"line\nbreak\"", "is not valid JSON");
  expect_refused(std::string("[1\0]", 4), "is not valid JSON");
}

TEST(ParseJson, TheMessageNamesThePlaceAndStaysShort) {
  expect_refused("[1, 2, x]", "at byte 8");
  expect_refused(std::string("\"").append(100'000, 'a'), "bytes more)");
}

TEST(ParseJson, RefusesInvalidUtf8) {
  expect_refused("\"\xFF\"", "is not valid UTF-8");
  expect_refused("\"\xC0\xAF\"", "is not valid UTF-8");
  expect_refused("\"\xED\xA0\x80\"", "is not valid UTF-8");
  expect_refused("[1]\x80", "is not valid UTF-8");
}

TEST(ParseJson, RefusesARepeatedKeyButNotTheSameKeyElsewhere) {
  expect_refused(R"({"a": 1, "b": 2, "a": 3})", "has the key 'a' twice");
  expect_refused(R"([{"x": {"key": 1, "\u006bey": 2}}])", "has the key 'key' twice");
  expect_refused(R"({"": 1, "": 1})", "has the key '' twice");
  EXPECT_EQ(parse_json(R"({"a": {"a": 1}, "b": {"a": 2}})", "text")["b"]["a"].get<int>(), 2);
}

TEST(ParseJson, HugeNumbers) {
  expect_refused("[1e999]", "exceeds the range of a double");
  expect_refused("-1e400", "exceeds the range of a double");
  // Past 64 bits an integer is read as the nearest double.
  EXPECT_EQ(parse_json("18446744073709551616", "text").get<double>(), 0x1p64);
  EXPECT_EQ(parse_json("1e-999", "text").get<double>(), 0.0);
  EXPECT_EQ(parse_json(std::string("1").append(300, '0'), "text").get<double>(), 1e300);
  expect_refused(std::string("1").append(100'000, '0'), "exceeds the range of a double");
}

TEST(ParseJson, ManyKeysTakeNoQuadraticTime) {
  // nlohmann's ordered object would compare 200,000 keys with all before them: 2 * 10^10 times.
  std::string text = "{";
  constexpr int keys = 200'000;
  for (int key = 0; key < keys; ++key) {
    text += fmt::format("\"k{0}\":{0},", key);
  }
  text.back() = '}';
  const auto start = std::chrono::steady_clock::now();
  const Json value = parse_json(text, "text");
  const auto elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(value.size(), static_cast<std::size_t>(keys));
  EXPECT_EQ(value["k199999"].get<int>(), 199'999);
  EXPECT_LT(elapsed, std::chrono::seconds(10));
}

TEST(DumpJson, ReplacesInvalidUtf8) {
  Json value;
  value["text"] =
      "a\xFF"
      "b\xE2\x82";
  EXPECT_EQ(dump_json(value),
            "{\"text\":\"a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD\"}");
}

TEST(DumpJson, WritesNumbersThatReadBackAndNullForNan) {
  Json value;
  value["third"] = 1.0 / 3.0;
  value["nan"] = std::nan("");
  value["list"] = {1, 2};
  EXPECT_EQ(dump_json(value), R"({"third":0.3333333333333333,"nan":null,"list":[1,2]})");
  EXPECT_EQ(dump_json(value["list"], 2), "[\n  1,\n  2\n]");
  EXPECT_EQ(parse_json(dump_json(value), "text")["third"].get<double>(), 1.0 / 3.0);
}

}  // namespace
}  // namespace octet
