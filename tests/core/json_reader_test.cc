#include "core/json_reader.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace octet {
namespace {

void expect_refused(const std::string& text, const std::string& part) {
  try {
    JsonReader reader(text, "header");
    reader.skip_value();
    reader.finish();
    ADD_FAILURE() << "accepted " << text.substr(0, 60);
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_EQ(message.rfind("header: ", 0), 0u) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks: " << part;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 300u) << message;
  }
}

TEST(JsonReader, ReadsWhatItIsAskedFor) {
  const std::string text =
      R"( {"name" : "a\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac\ud83d\ude42", "sizes":[0,10 , 18446744073709551615],
          "nothing":null, "\u006bey": "plain é", "rest": {"x": [1.5e-3, -0, true, false, []]}, "e": [] } )";
  JsonReader reader(text, "header");
  reader.begin_object();
  EXPECT_EQ(reader.next_key(), "name");
  EXPECT_EQ(reader.read_string(), "a\"\\/\b\f\n\r\tA\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82");
  EXPECT_EQ(reader.next_key(), "sizes");
  EXPECT_FALSE(reader.try_null());
  reader.begin_array();
  std::vector<std::uint64_t> sizes;
  while (reader.next_element()) sizes.push_back(reader.read_uint());
  EXPECT_EQ(sizes, (std::vector<std::uint64_t>{0, 10, UINT64_MAX}));
  EXPECT_EQ(reader.next_key(), "nothing");
  EXPECT_TRUE(reader.try_null());
  EXPECT_EQ(reader.next_key(), "key");
  EXPECT_EQ(reader.read_string(), "plain \xC3\xA9");
  EXPECT_EQ(reader.next_key(), "rest");
  reader.skip_value();
  EXPECT_EQ(reader.next_key(), "e");
  reader.begin_array();
  EXPECT_FALSE(reader.next_element());
  EXPECT_FALSE(reader.next_key());
  reader.finish();
}

TEST(JsonReader, RefusesWhatIsNoJson) {
  expect_refused("", "ends after 0 bytes, expected a value");
  expect_refused("{\"a\":1", "ends after 6 bytes, expected a comma or the end of the object");
  expect_refused("{\"a\" 1}", "expected a colon after a key");
  expect_refused("{\"a\":1,}", "expected a string");
  expect_refused("{1:2}", "expected a string");
  expect_refused("[1,]", "expected a value");
  expect_refused("[1 2]", "has '2]' at byte 3, expected a comma");
  expect_refused("[1}", "expected a comma");
  expect_refused("[] x", "has 'x' at byte 3, expected its end");
  expect_refused("\"a", "the end of a string");
  expect_refused("\"a\nb\"", "no control character");
  expect_refused("\"\\x\"", "an escape of JSON");
  expect_refused("\"\\ud800\"", "an escape of JSON");
  expect_refused("\"\\ude00\"", "an escape of JSON");
  expect_refused("\"\\ud800\\u0041\"", "an escape of JSON");
  expect_refused("\"\\u12g4\"", "four hexadecimal digits");
  expect_refused("\"\\", "an escape of JSON");
  expect_refused("\"\xC3\"", "valid UTF-8");
  expect_refused("\"\\n\xED\xA0\x80\"", "valid UTF-8");
  expect_refused("01", "its end");
  expect_refused("1.", "a digit");
  expect_refused("-", "a digit");
  expect_refused("1e+", "a digit");
  expect_refused("NaN", "a value");
  expect_refused("tru", "a value");
  expect_refused(std::string("[\0]", 3), "a value");
}

TEST(JsonReader, RefusesNumbersThatAreNoUnsignedIntegers) {
  for (const std::string text : {"-1", "1.0", "1e3", "01", "18446744073709551616", "\"1\"", "x", "",
                                 "99999999999999999999999999"}) {
    JsonReader reader(text, "header");
    EXPECT_THROW(reader.read_uint(), Error) << text;
  }
}

TEST(JsonReader, NestsToItsLimit) {
  const auto nested = [](int depth, const std::string& open, const std::string& close) {
    std::string text;
    for (int i = 0; i < depth; ++i) text += open;
    for (int i = 0; i < depth; ++i) text += close;
    return text;
  };
  const std::string deepest = nested(64, "[", "]");
  JsonReader at_limit(deepest, "header");
  at_limit.skip_value();
  at_limit.finish();
  expect_refused(nested(65, "[", "]"), "nests arrays and objects deeper than 64");
  expect_refused(nested(3000, "[", "]"), "nests arrays and objects deeper than 64");
  expect_refused(nested(3000, "{\"a\":", "}"), "nests arrays and objects deeper than 64");
}

// The library's parser is the other opinion.
TEST(JsonReader, AcceptsWhatTheLibraryAccepts) {
  const std::vector<std::string> seeds = {
      R"({"a":[1,-2.5e+3,"x\u00e9\ud83d\ude42"],"b":{"c":null,"d":[true,false,{}]}})",
      R"([[],[[]],{"":""},"\\\"\/\b",0,10,-0,1e5,1E-7])"};
  const std::string alphabet = "{}[]:,\"\\ue0123456789-+.EtrufalsnxD8\n \x01\xC3\xA9";
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 40000; ++round) {
    std::string text = seeds[random() % seeds.size()];
    for (auto change = random() % 3; change > 0; --change) {
      const std::size_t place = random() % text.size();
      const char character = alphabet[random() % alphabet.size()];
      switch (random() % 3) {
        case 0:
          text[place] = character;
          break;
        case 1:
          text.insert(place, 1, character);
          break;
        default:
          text.erase(place, 1);
      }
    }
    bool ours = true;
    try {
      JsonReader reader(text, "text");
      reader.skip_value();
      reader.finish();
    } catch (const Error&) {
      ours = false;
    }
    ASSERT_EQ(ours, nlohmann::json::accept(text)) << text;
    accepted += ours ? 1 : 0;
  }
  EXPECT_GT(accepted, 10000);
  EXPECT_LT(accepted, 35000);
}

}  // namespace
}  // namespace octet
