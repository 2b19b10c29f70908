// What the `tokenizers` package made of hard texts: see tools/oracle/tokenizer_cases.py.
#pragma once

#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace octet {

inline nlohmann::json read_frozen_cases(const std::string& name) {
  const std::string path = std::string(OCTET_TEST_DATA) + "/text/" + name;
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << "cannot read " << path;
  return nlohmann::json::parse(file);
}

}  // namespace octet
