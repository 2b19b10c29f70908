// A small vocabulary for the tests of the tokenizer, and what they share.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "core/error.h"
#include "text/byte_level.h"
#include "text/byte_pair_tokenizer.h"
#include "text/unicode.h"

namespace octet {
inline namespace test_support {

// The 256 bytes as tokens 0 to 255, what merging "h e", "l l", "he ll" and "hell o" gives (256 to
// 259), then <|im_end|> 260 and <|im_start|> 261 (control) and <tool> 262 (user-defined).
inline BytePairTables small_tables() {
  BytePairTables tables;
  tables.source = "small.gguf";
  tables.pre_tokenizer = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    tables.tokens.emplace_back();
    append_utf8(byte_level_character(static_cast<std::uint8_t>(byte)), tables.tokens.back());
  }
  for (const char* token : {"he", "ll", "hell", "hello", "<|im_end|>", "<|im_start|>", "<tool>"}) {
    tables.tokens.emplace_back(token);
  }
  tables.token_types.assign(260, 1);
  tables.token_types.insert(tables.token_types.end(), {3, 3, 4});
  tables.merges = {"h e", "l l", "he ll", "hell o"};
  tables.bos_token_id = 261;
  tables.eos_token_id = 260;
  return tables;
}

// The message of the Error{kind} that `action` throws; a failure if it throws none.
template <typename Action>
std::string error_message(ErrorKind kind, Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

}  // namespace test_support
}  // namespace octet
