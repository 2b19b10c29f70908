#include "text/chat_template.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/utf8.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/limits.h"
#include "text/jinja/parser.h"

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

// `what` names the text for an error.
Value checked_text(const std::string& what, const std::string& text, bool literal) {
  if (text.size() > jinja::max_string_bytes) {
    throw_bad_input("{} has {} bytes, more than {}", what, text.size(), jinja::max_string_bytes);
  }
  if (const std::optional<std::size_t> offset = find_invalid_utf8(text)) {
    throw_bad_input("{} is not UTF-8 at byte {}", what, *offset);
  }
  return Value::string(text, literal);
}

Value message_list(const std::vector<ChatMessage>& messages) {
  std::vector<Value> list;
  for (const ChatMessage& message : messages) {
    const std::string of_message = fmt::format("of message {}", list.size());
    Value role = checked_text("the role " + of_message, message.role, !is_known_role(message.role));
    Value content = checked_text("the content " + of_message, message.content, true);
    list.push_back(Value::dict({{Value::string("role", false), std::move(role)},
                                {Value::string("content", false), std::move(content)}}));
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
      {"bos_token", checked_text("the beginning-of-text token", input.beginning_of_text, false)},
      {"eos_token", checked_text("the end-of-text token", input.end_of_text, false)},
  };
  return to_pieces(jinja::render(program_->program, variables, local_time_now()));
}

}  // namespace octet
