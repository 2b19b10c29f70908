// Decodes any token ids, at once and token by token: the same text, never half a character.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/utf8.h"
#include "text/byte_level.h"
#include "text/byte_pair_tokenizer.h"
#include "text/detokenizer.h"

namespace octet {
namespace {

void check(bool holds) {
  if (!holds) __builtin_trap();
}

// The 256 bytes; then tokens that end inside characters, and a control token.
const Tokenizer& byte_tokenizer() {
  static const BytePairTokenizer tokenizer([] {
    BytePairTables tables;
    tables.source = "fuzz.gguf";
    tables.pre_tokenizer = "gpt-2";
    const auto add = [&](std::string_view bytes) {
      tables.tokens.emplace_back();
      for (const char byte : bytes) {
        append_utf8(byte_level_character(static_cast<std::uint8_t>(byte)), tables.tokens.back());
      }
    };
    for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
    for (const char* bytes :
         {"\xE6\x97", "\xA5\xE6", "a\xF0\x9F", "\x98\x80z", "\xED\xA0", "\xC0\x80"}) {
      add(bytes);
    }
    tables.token_types.assign(tables.tokens.size(), 1);
    tables.tokens.emplace_back("<|end|>");
    tables.token_types.push_back(3);
    return tables;
  }());
  return tokenizer;
}

}  // namespace
}  // namespace octet

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const octet::Tokenizer& tokenizer = octet::byte_tokenizer();
  std::vector<octet::TokenId> ids;
  for (std::size_t i = 0; i < size; ++i) {
    // 0xF8 to 0xFF, which no text holds, stand for the tokens beyond the bytes.
    ids.push_back(data[i] >= 0xF8 ? 256 + (data[i] - 0xF8) % 7 : data[i]);
  }
  octet::Detokenizer detokenizer(tokenizer);
  std::string streamed;
  for (const octet::TokenId id : ids) {
    const std::string part = detokenizer.push(id);
    octet::check(octet::is_valid_utf8(part));
    streamed += part;
  }
  const std::string rest = detokenizer.finish();
  octet::check(octet::is_valid_utf8(rest));
  octet::check(streamed + rest == tokenizer.decode(ids));
  return 0;
}
