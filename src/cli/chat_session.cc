#include "cli/chat_session.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/error.h"
#include "core/json.h"

namespace octet {
namespace {

// The template's own errors know nothing of the file.
template <typename Action>
auto naming(const std::string& name, Action action) {
  try {
    return action();
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", name, error.what()));
  }
}

}  // namespace

ChatTemplate read_chat_template(const LoadedModel& loaded) {
  const FolderText& source = require_chat_template(loaded);
  return naming(source.file, [&] { return ChatTemplate::parse(source.text); });
}

ChatSession::ChatSession(const LoadedModel& loaded, ChatTemplate chat_template,
                         const EngineOptions& options, SamplingParams sampling)
    : tokenizer_(loaded.tokenizer),
      template_name_(require_chat_template(loaded).file),
      template_(std::move(chat_template)),
      engine_(loaded.model, loaded.tokenizer, options),
      sampling_(std::move(sampling)) {}

void ChatSession::set_system(std::optional<std::string> text) {
  system_ = std::move(text);
  clear();
}

void ChatSession::clear() {
  messages_.clear();
  if (system_) messages_.push_back({"system", *system_});
}

std::vector<TokenId> ChatSession::encode() const {
  const auto text_of = [&](std::optional<TokenId> token) {
    return token ? std::string(tokenizer_->token_text(*token)) : std::string();
  };
  ChatTemplateInput input;
  input.messages = messages_;
  input.beginning_of_text = text_of(tokenizer_->beginning_of_text());
  const std::vector<TokenId>& ends = tokenizer_->end_tokens();
  if (!ends.empty()) input.end_of_text = text_of(ends.front());
  return tokenizer_->encode(naming(template_name_, [&] { return template_.render(input); }));
}

ChatSession::Answer ChatSession::ask(std::string text,
                                     const std::function<void(std::string_view)>& show,
                                     const std::function<bool()>& stops) {
  const std::vector<ChatMessage> before = messages_;
  messages_.push_back({"user", std::move(text)});
  try {
    std::vector<TokenId> prompt = encode();
    const auto tokens = static_cast<std::int64_t>(prompt.size());
    const std::int64_t context = engine_.core().max_model_len();
    if (tokens >= context) {
      throw_bad_input(
          "the conversation has {} tokens, and the context of {} "
          "must hold it and an answer: "
          "/clear begins anew",
          tokens, context);
    }
    std::string answer;
    const Answer result = generate(std::move(prompt), &answer, show, stops);
    messages_.push_back({"assistant", std::move(answer)});
    return result;
  } catch (...) {
    messages_ = before;
    throw;
  }
}

ChatSession::Answer ChatSession::generate(std::vector<TokenId> prompt, std::string* text,
                                          const std::function<void(std::string_view)>& show,
                                          const std::function<bool()>& stops) {
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t hits_before = engine_.stats().prefix_hits;
  Answer answer;
  answer.prompt_tokens = static_cast<std::int64_t>(prompt.size());
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling = sampling_;
  const RequestId id = engine_.submit(std::move(request));
  while (!engine_.idle()) {
    for (const TokenEvent& event : engine_.step()) {
      if (event.finished == FinishReason::error) {
        throw_error(ErrorKind::internal, "{}", event.message);
      }
      if (event.token >= 0) ++answer.tokens;
      *text += event.text;
      if (!event.text.empty()) show(event.text);
      if (event.finished != FinishReason::none) answer.finished = event.finished;
    }
    if (stops()) engine_.cancel(id);
  }
  answer.reused_tokens = engine_.stats().prefix_hits - hits_before;
  answer.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return answer;
}

std::string ChatSession::as_json() const {
  Json list = Json::array();
  for (const ChatMessage& message : messages_) {
    Json one;
    one["role"] = message.role;
    one["content"] = message.content;
    list.push_back(std::move(one));
  }
  return dump_json(list, 2);
}

}  // namespace octet
