// The chat templates of many families, as `make models` fetches them, against the jinja2 package by
// the hashes of what it renders: tools/oracle/family_templates.py made the cases.
#include <ctime>
#include <string>

#include <gtest/gtest.h>

#include "core/error.h"
#include "files/gguf.h"
#include "support/test_models.h"
#include "text/corpus.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/jinja_values.h"

namespace octet::jinja {
namespace {

const Json& frozen_templates() {
  static const Json data = read_json("templates/families.json");
  return data;
}

std::string hash_of(const std::string& text) {
  Hash hash;
  hash.add_bytes(text);
  return hash.text();
}

std::string source_of(const std::string& name) {
  if (!name.ends_with(".gguf")) return read_file(real_model_path("templates/" + name));
  return GgufFile::open(real_model_path(name))->require_string("tokenizer.chat_template");
}

// Null where jinja2 refuses: so must octet, in one sentence.
void expect_case(const Program& program, const Json& item, const Json& expected,
                 const std::string& where) {
  try {
    const std::string text =
        render(program, to_variables(item.at("variables")), case_time()).bytes();
    EXPECT_EQ(hash_of(text), expected.is_null() ? "refused" : expected.get<std::string>())
        << where << "\n"
        << text.substr(0, 2000);
  } catch (const Error& error) {
    EXPECT_TRUE(expected.is_null()) << where << "\n" << error.what();
  }
}

class FamilyTemplateTest : public testing::TestWithParam<std::size_t> {};

TEST_P(FamilyTemplateTest, ConversationsRenderAsJinja2Does) {
  const Json& one = frozen_templates().at("templates").at(GetParam());
  const std::string name = one.at("name");
  const std::string source = source_of(name);
  ASSERT_EQ(hash_of(source), one.at("source"));
  const Program program = parse(source);
  const Json& cases = frozen_templates().at("cases");
  ASSERT_EQ(cases.size(), one.at("rendered").size());
  ASSERT_GE(cases.size(), 70u);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    expect_case(program, cases[i], one.at("rendered")[i],
                fmt::format("{}, case {}: {}", name, i, cases[i].at("name").get<std::string>()));
  }
}

std::string name_of_case(const testing::TestParamInfo<std::size_t>& info) {
  std::string name = frozen_templates().at("templates").at(info.param).at("name");
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, FamilyTemplateTest,
                         testing::Range(std::size_t{0}, frozen_templates().at("templates").size()),
                         name_of_case);

}  // namespace
}  // namespace octet::jinja
