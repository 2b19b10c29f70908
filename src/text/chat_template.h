// Renders a conversation with the model's own Jinja template.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace octet {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// A piece of a rendered prompt. Text that came from a message is `literal`: special-token text in it
// must not become special tokens. Text that the template wrote is not.
struct PromptPiece {
  std::string text;
  bool literal = false;
};

struct ChatTemplateInput {
  std::vector<ChatMessage> messages;
  bool add_generation_prompt = true;
  std::string beginning_of_text;  // the template's `bos_token`
  std::string end_of_text;        // the template's `eos_token`
};

class ChatTemplate {
 public:
  // Throws Error{bad_input} with line and column for a template that does not parse, and
  // Error{unsupported} that names the construct for one outside the subset.
  static ChatTemplate parse(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // Adjacent pieces of one kind are joined. Throws Error{bad_input} for raise_exception() (with the
  // template's message), undefined names where Jinja would refuse them, and past the limits: steps,
  // depth and output size.
  std::vector<PromptPiece> render(const ChatTemplateInput& input) const;

 private:
  ChatTemplate();
  struct Program;
  std::unique_ptr<Program> program_;
};

}  // namespace octet
