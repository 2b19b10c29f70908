// What OpenAI's API asks for, in native types: a request's JSON ends here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "text/chat_template.h"

namespace octet {

// What a request may ask for; the OpenAPI document states the same figures.
struct RequestLimits {
  std::int64_t max_model_len = 0;
  std::int64_t vocabulary_size = 0;
  std::size_t max_json_bytes = std::size_t{16} << 20;
};

namespace request_limits {
inline constexpr std::int64_t choices = 128;  // answers of one request, over all its prompts
inline constexpr std::int64_t prompts = 128;
inline constexpr std::int64_t messages = 4096;
inline constexpr std::int64_t logprobs = 20;
inline constexpr std::size_t stops = 16;
inline constexpr std::int64_t stop_characters = 256;
inline constexpr std::size_t stop_token_ids = 1024;
inline constexpr std::size_t logit_bias = 1024;
inline constexpr std::int64_t label_characters = 256;  // of user, cache_salt and the like
}  // namespace request_limits

// What /v1/completions and /v1/chat/completions share.
struct GenerationOptions {
  std::optional<std::string> model;  // missing: the one that is served
  SamplingParams sampling;           // without max_tokens
  std::optional<std::int64_t> max_tokens;
  int choices = 1;  // of each prompt
  bool stream = false;
  bool include_usage = false;  // in a last chunk of the stream
  std::string cache_salt;
};

using PromptInput = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  GenerationOptions options;
  std::vector<PromptInput> prompts;
  bool add_special_tokens = true;
  bool echo = false;
};

struct ChatRequest {
  GenerationOptions options;
  std::vector<ChatMessage> messages;
  bool add_generation_prompt = true;
};

struct TokenizeRequest {
  std::optional<std::string> model;
  std::optional<std::string> prompt;
  std::vector<ChatMessage> messages;  // where there is no prompt
  bool add_special_tokens = true;
  bool add_generation_prompt = true;
  bool return_token_strings = false;
};

struct DetokenizeRequest {
  std::optional<std::string> model;
  std::vector<TokenId> tokens;
};

// Each throws ApiError{400} that names the field at fault: one that is missing, out of range, not
// supported, or unknown.
CompletionRequest parse_completion_request(std::string_view body, const RequestLimits& limits);
ChatRequest parse_chat_request(std::string_view body, const RequestLimits& limits);
TokenizeRequest parse_tokenize_request(std::string_view body, const RequestLimits& limits);
DetokenizeRequest parse_detokenize_request(std::string_view body, const RequestLimits& limits);

}  // namespace octet
