// Reads any bytes as a tokenizer.json (and, behind a zero byte, a tokenizer_config.json), and
// encodes and decodes with what comes of it. The only other way out is an Error of the two kinds
// that tokenizer_from_json promises, with one line that names the file.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/utf8.h"
#include "text/tokenizer_json.h"

namespace octet {
namespace {

void check(bool holds) {
  if (!holds) __builtin_trap();
}

void check_error(const Error& error) {
  check(error.kind() == ErrorKind::bad_input || error.kind() == ErrorKind::unsupported);
  check(std::string_view(error.what()).find('\n') == std::string_view::npos);
}

constexpr std::string_view texts[] = {"",
                                      " ",
                                      "hello world",
                                      "  a\n\nb\t1234567",
                                      "don't \u65e5\u672c\u8a9e \U0001F600 e\u0301",
                                      "<s>x</s><tool> <a>\n y",
                                      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                      "\u2581\u2581x"};

void use(const Tokenizer& tokenizer) {
  for (const std::string_view text : texts) {
    for (const SpecialText special : {SpecialText::literal, SpecialText::parse}) {
      try {
        const std::vector<TokenId> ids = tokenizer.encode(text, special);
        for (const TokenId id : ids) check(id >= 0 && id < tokenizer.vocabulary_size());
        check(is_valid_utf8(tokenizer.decode(ids)));
        check(is_valid_utf8(tokenizer.decode(ids, true)));
      } catch (const Error& error) {
        check_error(error);  // a pattern past its steps
      }
    }
  }
}

}  // namespace
}  // namespace octet

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = bytes.find('\0');
  octet::TokenizerTexts texts;
  texts.tokenizer = {"tokenizer.json", std::string(bytes.substr(0, zero))};
  if (zero != std::string_view::npos) {
    texts.config = {"tokenizer_config.json", std::string(bytes.substr(zero + 1))};
  }
  try {
    octet::use(*octet::tokenizer_from_json(texts));
    octet::find_chat_template({}, texts.config);
  } catch (const octet::Error& error) {
    octet::check_error(error);
    octet::check(std::string_view(error.what()).starts_with("tokenizer"));
  }
  return 0;
}
