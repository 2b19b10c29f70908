// What the `tokenizers` package made of hard texts: see tools/oracle/tokenizer_cases.py.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "core/json.h"

namespace octet {
inline namespace test_support {

inline Json read_frozen_cases(const std::string& name) {
  const std::string path = std::string(OCTET_TEST_DATA) + "/text/" + name;
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << "cannot read " << path;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return parse_json(text, path);
}

}  // namespace test_support
}  // namespace octet
