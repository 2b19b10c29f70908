// A conversation with a model: the turns so far, and the next answer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"
#include "engine/engine.h"
#include "text/chat_template.h"

namespace octet {

// The model's template. Throws Error{bad_input} that names the file where it has none or a broken
// one.
ChatTemplate read_chat_template(const LoadedModel& loaded);

class ChatSession {
 public:
  struct Answer {
    FinishReason finished = FinishReason::none;
    std::int64_t prompt_tokens = 0;  // of the whole conversation
    std::int64_t reused_tokens = 0;  // of these, found in the cache from the turns before
    std::int64_t tokens = 0;         // of the answer
    double seconds = 0;
  };

  ChatSession(const LoadedModel& loaded, ChatTemplate chat_template, const EngineOptions& options,
              SamplingParams sampling);

  // The system turn; nothing for none. Begins the conversation anew.
  void set_system(std::optional<std::string> text);
  void clear();

  // Adds a user's turn and the answer to it, which goes to `show` piece by
  // piece; `stops` is asked after each step. A stopped answer stays in the
  // conversation as far as it came. Throws Error{bad_input} for a turn that the
  // context has no room for, which then is forgotten.
  Answer ask(std::string text, const std::function<void(std::string_view)>& show,
             const std::function<bool()>& stops);

  // The conversation as a JSON list of messages.
  std::string as_json() const;
  const Engine& engine() const { return engine_; }

 private:
  std::vector<TokenId> encode() const;
  Answer generate(std::vector<TokenId> prompt, std::string* text,
                  const std::function<void(std::string_view)>& show,
                  const std::function<bool()>& stops);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string template_name_;  // for errors
  ChatTemplate template_;
  Engine engine_;
  SamplingParams sampling_;
  std::vector<ChatMessage> messages_;
  std::optional<std::string> system_;
};

}  // namespace octet
