// The template language against the jinja2 package: tools/oracle/template_cases.py made the cases.
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/jinja_values.h"

namespace octet::jinja {
namespace {

Json read_cases(const std::string& name) {
  std::ifstream file(std::string(OCTET_TEST_DATA) + "/templates/" + name + ".json");
  EXPECT_TRUE(file.is_open()) << name;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return parse_json(text, name);
}

std::string render_text(const std::string& source, const Variables& variables) {
  return render(parse(source), variables, case_time()).bytes();
}

TEST(JinjaTest, FeaturesRenderAsJinja2Does) {
  const Json data = read_cases("features");
  const Variables variables = to_variables(data["variables"]);
  int rendered = 0;
  for (const auto& item : data["cases"]) {
    if (item["rendered"].is_null()) continue;
    const std::string source = item["template"];
    ++rendered;
    try {
      EXPECT_EQ(render_text(source, variables), item["rendered"].get<std::string>()) << source;
    } catch (const Error& error) {
      ADD_FAILURE() << source << "\n" << error.what();
    }
  }
  EXPECT_GE(rendered, 120);
}

TEST(JinjaTest, WhatJinja2RefusesIsAnErrorWithItsPlace) {
  const Json data = read_cases("features");
  const Variables variables = to_variables(data["variables"]);
  int refused = 0;
  for (const auto& item : data["cases"]) {
    if (!item["rendered"].is_null()) continue;
    const std::string source = item["template"];
    ++refused;
    try {
      ADD_FAILURE() << source << "\ngave " << render_text(source, variables);
    } catch (const Error& error) {
      EXPECT_TRUE(error.kind() == ErrorKind::bad_input || error.kind() == ErrorKind::unsupported)
          << source;
      EXPECT_EQ(std::string(error.what()).rfind("chat template, line 1, column ", 0), 0u)
          << source << "\n"
          << error.what();
    }
  }
  EXPECT_GE(refused, 90);
}

class ModelTemplateTest : public testing::TestWithParam<const char*> {};

TEST_P(ModelTemplateTest, ConversationsRenderAsJinja2Does) {
  const Json data = read_cases(GetParam());
  const Program program = parse(data["template"].get<std::string>());
  int rendered = 0;
  for (const auto& item : data["cases"]) {
    const MarkedText text = render(program, to_variables(item["variables"]), case_time());
    EXPECT_EQ(text.bytes(), item["rendered"].get<std::string>()) << item["name"];
    ++rendered;
  }
  EXPECT_EQ(rendered, 32);
}

INSTANTIATE_TEST_SUITE_P(Models, ModelTemplateTest, testing::Values("smollm2", "qwen2"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace octet::jinja
