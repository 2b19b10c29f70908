// Renders a conversation with the model's own Jinja template, as the transformers package would:
// jinja2's ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, loopcontrols,
// `generation` blocks, and transformers' tojson, raise_exception and strftime_now. src/text/jinja/
// is the language.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/prompt_piece.h"

namespace octet {

struct ChatMessage {
  // "system", "developer", "user", "assistant" or "tool"; any other is printed as literal text.
  std::string role;
  std::string content;
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

  // Adjacent pieces of one kind are joined; none is empty. The template sees `messages`,
  // `add_generation_prompt`, `bos_token`, `eos_token`, and `tools` and `documents` as none. A byte
  // is template text only if the template's source, a known role or one of the two tokens spelt it,
  // through every operation; what comes from content is literal.
  // Throws Error{bad_input}, with line and column, for raise_exception() (with the template's
  // message), undefined names where Jinja would refuse them, and past the limits on steps, depth
  // and sizes (src/text/jinja/limits.h); and for text that is not UTF-8.
  std::vector<PromptPiece> render(const ChatTemplateInput& input) const;

 private:
  ChatTemplate();
  struct Program;
  std::unique_ptr<Program> program_;
};

}  // namespace octet
