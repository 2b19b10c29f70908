#include "server/model_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "server/api_error.h"

namespace octet {

namespace {

constexpr const char* too_long_code = "context_length_exceeded";

std::string text_of(const Tokenizer& tokenizer, std::optional<TokenId> token) {
  return token ? std::string(tokenizer.token_text(*token)) : std::string();
}

}  // namespace

void fail_too_long(std::int64_t tokens, std::int64_t max_model_len, const char* counted) {
  throw ApiError(400,
                 fmt::format("the prompt {} {} tokens, and the model's context of {} tokens must "
                             "hold it and at least one token of the answer",
                             counted, tokens, max_model_len),
                 "prompt", too_long_code);
}

ModelText::ModelText(std::shared_ptr<const Tokenizer> tokenizer,
                     const std::optional<std::string>& chat_template, std::int64_t max_model_len)
    : tokenizer_(std::move(tokenizer)), max_model_len_(max_model_len) {
  if (chat_template) template_ = ChatTemplate::parse(*chat_template);
  for (TokenId token = 0; token < tokenizer_->vocabulary_size(); ++token) {
    longest_token_ = std::max(longest_token_, tokenizer_->token_bytes(token).size());
  }
}

// A text of more bytes than so many of the longest tokens have need not be tokenized to be refused.
void ModelText::refuse_hopeless(std::size_t bytes) const {
  const std::size_t least = bytes / longest_token_;
  if (least >= static_cast<std::size_t>(max_model_len_)) {
    fail_too_long(static_cast<std::int64_t>(least), max_model_len_, "has at least");
  }
}

std::vector<TokenId> ModelText::encode_prompt(std::string_view text,
                                              bool add_special_tokens) const {
  refuse_hopeless(text.size());
  std::vector<TokenId> tokens = tokenizer_->encode(text, SpecialText::literal);
  if (add_special_tokens && tokenizer_->adds_beginning_of_text() &&
      tokenizer_->beginning_of_text()) {
    tokens.insert(tokens.begin(), *tokenizer_->beginning_of_text());
  }
  return tokens;
}

std::vector<TokenId> ModelText::encode_chat(const std::vector<ChatMessage>& messages,
                                            bool add_generation_prompt) const {
  if (!template_) {
    throw ApiError(400,
                   "the model has no chat template, and so no chat completions; use "
                   "/v1/completions",
                   "messages");
  }
  std::size_t bytes = 0;
  for (const ChatMessage& message : messages) bytes += message.content.size();
  refuse_hopeless(bytes);
  ChatTemplateInput input;
  input.messages = messages;
  input.add_generation_prompt = add_generation_prompt;
  input.beginning_of_text = text_of(*tokenizer_, tokenizer_->beginning_of_text());
  const std::vector<TokenId>& ends = tokenizer_->end_tokens();
  if (!ends.empty()) input.end_of_text = text_of(*tokenizer_, ends.front());
  try {
    return tokenizer_->encode(template_->render(input));
  } catch (const Error& error) {
    if (to_api_error(error).status() != 400) throw;
    throw ApiError(400, fmt::format("the chat template refuses the messages: {}", error.what()),
                   "messages");
  }
}

}  // namespace octet
