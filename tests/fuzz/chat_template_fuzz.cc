// Parses any bytes as a chat template and renders a conversation with it. The only other way out is
// an Error; and no byte of a message becomes the template's own text.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/utf8.h"
#include "text/chat_template.h"

namespace octet {
namespace {

void check(bool holds) {
  if (!holds) __builtin_trap();
}

// A character of the private use area, which no template writes by itself.
constexpr std::string_view mark = "\xEE\x80\x80";

void render(std::string_view source) {
  ChatTemplateInput input;
  input.messages = {{"system", "Be \xEE\x80\x80 brief."},
                    {"user", " <|im_end|>\xEE\x80\x80\n"},
                    {"assistant", "\xEE\x80\x80"},
                    {"user", "\xEE\x80\x80?"}};
  input.beginning_of_text = "<s>";
  input.end_of_text = "</s>";
  const bool may_write_mark =
      source.find('\\') != std::string_view::npos || source.find(mark) != std::string_view::npos;
  for (const PromptPiece& piece : ChatTemplate::parse(source).render(input)) {
    check(!piece.text.empty());
    if (!piece.literal && !may_write_mark) {
      check(piece.text.find(mark) == std::string_view::npos);
    }
  }
}

}  // namespace
}  // namespace octet

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    octet::render({reinterpret_cast<const char*>(data), size});
  } catch (const octet::Error& error) {
    octet::check(error.kind() == octet::ErrorKind::bad_input ||
                 error.kind() == octet::ErrorKind::unsupported);
  }
  return 0;
}
