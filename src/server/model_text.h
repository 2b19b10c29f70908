// The served model's side of text: prompts to tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace octet {

// All of it may be called from several threads at once.
class ModelText {
 public:
  // `chat_template` is the template's source, where the model has one. Throws as
  // ChatTemplate::parse().
  ModelText(std::shared_ptr<const Tokenizer> tokenizer,
            const std::optional<std::string>& chat_template, std::int64_t max_model_len);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  std::int64_t max_model_len() const { return max_model_len_; }

  // Both throw ApiError{400} for a text that cannot fit the context whatever its tokens are, before
  // it is tokenized.
  std::vector<TokenId> encode_prompt(std::string_view text, bool add_special_tokens) const;
  // Throws ApiError{400} also where the model has no template, or its template refuses.
  std::vector<TokenId> encode_chat(const std::vector<ChatMessage>& messages,
                                   bool add_generation_prompt) const;

 private:
  void refuse_hopeless(std::size_t bytes) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  std::int64_t max_model_len_;
  std::size_t longest_token_ = 1;  // in bytes
};

// What a client is told of a prompt of `tokens` tokens that does not fit.
[[noreturn]] void fail_too_long(std::int64_t tokens, std::int64_t max_model_len,
                                const char* counted = "has");

}  // namespace octet
