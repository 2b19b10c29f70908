#include "text/chat_template.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "core/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/limits.h"
#include "text/jinja/parser.h"
#include "text/jinja/unicode.h"

namespace octet {
namespace {

using jinja::MarkedText;
using jinja::Value;

// Roles that templates compare with and print inside their control text. Any other is the caller's
// own text, and so never a control token.
bool is_known_role(std::string_view role) {
  static constexpr std::string_view roles[] = {"system", "developer", "user", "assistant", "tool"};
  return std::find(std::begin(roles), std::end(roles), role) != std::end(roles);
}

Value message_text(std::size_t message, const char* field, const std::string& text, bool literal) {
  if (text.size() > jinja::max_string_bytes) {
    throw_bad_input("the {} of message {} has {} bytes, more than {}", field, message, text.size(),
                    jinja::max_string_bytes);
  }
  if (const std::optional<std::size_t> offset = jinja::find_invalid_utf8(text)) {
    throw_bad_input("the {} of message {} is not UTF-8 at byte {}", field, message, *offset);
  }
  return Value::string(text, literal);
}

Value message_list(const std::vector<ChatMessage>& messages) {
  std::vector<Value> list;
  for (const ChatMessage& message : messages) {
    const std::size_t number = list.size();
    const bool literal_role = !is_known_role(message.role);
    list.push_back(Value::dict({
        {Value::string("role", false), message_text(number, "role", message.role, literal_role)},
        {Value::string("content", false), message_text(number, "content", message.content, true)},
    }));
  }
  return Value::list(std::move(list));
}

std::vector<PromptPiece> to_pieces(const MarkedText& text) {
  std::vector<PromptPiece> pieces;
  const auto add = [&](std::size_t begin, std::size_t end, bool literal) {
    if (begin < end) pieces.push_back({text.bytes().substr(begin, end - begin), literal});
  };
  std::size_t done = 0;
  for (const MarkedText::Range& range : text.literal_ranges()) {
    add(done, range.begin, false);
    add(range.begin, range.end, true);
    done = range.end;
  }
  add(done, text.size(), false);
  return pieces;
}

std::tm local_time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

}  // namespace

struct ChatTemplate::Program {
  jinja::Program program;
};

ChatTemplate::ChatTemplate() = default;
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

ChatTemplate ChatTemplate::parse(std::string_view source) {
  ChatTemplate result;
  result.program_ = std::make_unique<Program>(Program{jinja::parse(source)});
  return result;
}

std::vector<PromptPiece> ChatTemplate::render(const ChatTemplateInput& input) const {
  // As transformers calls a template without tools and documents: both are given, as none.
  const jinja::Variables variables = {
      {"messages", message_list(input.messages)},
      {"tools", Value::none()},
      {"documents", Value::none()},
      {"add_generation_prompt", Value::boolean(input.add_generation_prompt)},
      {"bos_token", Value::string(input.beginning_of_text, false)},
      {"eos_token", Value::string(input.end_of_text, false)},
  };
  return to_pieces(jinja::render(program_->program, variables, local_time_now()));
}

}  // namespace octet
