#include "server/api_request.h"

#include <fmt/format.h>

#include "server/generation_fields.h"
#include "server/json_fields.h"

namespace octet {

namespace {

// A text, token ids, or a list of either.
std::vector<PromptInput> read_prompts(const Json& prompt, const RequestLimits& limits) {
  if (prompt.is_string()) return {prompt.get<std::string>()};
  if (!prompt.is_array() || prompt.empty()) {
    fail_field("prompt",
               fmt::format("prompt is {}, expected a text, a list of texts, token ids, or a list "
                           "of lists of token ids, none of them empty",
                           describe_value(prompt)));
  }
  if (prompt.front().is_number()) return {read_token_ids(prompt, "prompt", limits)};
  if (prompt.size() > static_cast<std::size_t>(request_limits::prompts)) {
    fail_field("prompt", fmt::format("prompt holds {} prompts, expected at most {}", prompt.size(),
                                     request_limits::prompts));
  }
  std::vector<PromptInput> prompts;
  const bool texts = prompt.front().is_string();
  for (const Json& item : prompt) {
    const std::string path = fmt::format("prompt[{}]", prompts.size());
    if (texts) {
      if (!item.is_string()) {
        fail_field("prompt", fmt::format("{} is {}, expected a text like the first", path,
                                         describe_value(item)));
      }
      prompts.emplace_back(item.get<std::string>());
    } else {
      prompts.emplace_back(read_token_ids(item, path, limits));
    }
  }
  return prompts;
}

// Chat has two names for one thing.
std::optional<std::int64_t> read_chat_max_tokens(JsonFields& fields) {
  const auto old_name = fields.integer("max_tokens", 1, INT32_MAX);
  const auto new_name = fields.integer("max_completion_tokens", 1, INT32_MAX);
  if (old_name && new_name && *old_name != *new_name) {
    fail_field("max_completion_tokens",
               "max_completion_tokens and max_tokens differ, expected one of the two");
  }
  return new_name ? new_name : old_name;
}

}  // namespace

CompletionRequest parse_completion_request(std::string_view body, const RequestLimits& limits) {
  const Json json = parse_body(body, limits);
  JsonFields fields(json, "");
  CompletionRequest request;
  request.options = read_generation_options(fields, limits);
  request.echo = fields.boolean("echo").value_or(false);
  request.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  // Without an echo there must be something to answer with.
  request.options.max_tokens = fields.integer("max_tokens", request.echo ? 0 : 1, INT32_MAX);
  if (const auto logprobs = fields.integer("logprobs", 0, request_limits::logprobs)) {
    request.options.sampling.logprobs = static_cast<int>(*logprobs);
    if (request.echo) request.options.sampling.prompt_logprobs = static_cast<int>(*logprobs);
  }
  // The engine reads a prompt and stops there only for the sake of its log-probabilities.
  if (request.options.max_tokens == 0 && request.options.sampling.prompt_logprobs < 0) {
    request.options.sampling.prompt_logprobs = 0;
  }
  fields.only("suffix", {""}, "an empty string");
  fields.only("best_of", {request.options.choices}, "the value of n");
  request.prompts = read_prompts(fields.require("prompt"), limits);
  fields.finish();
  if (static_cast<std::int64_t>(request.prompts.size()) * request.options.choices >
      request_limits::choices) {
    fail_field(
        "n", fmt::format("n is {} for each of {} prompts, expected at most {} answers in all",
                         request.options.choices, request.prompts.size(), request_limits::choices));
  }
  return request;
}

ChatRequest parse_chat_request(std::string_view body, const RequestLimits& limits) {
  const Json json = parse_body(body, limits);
  JsonFields fields(json, "");
  ChatRequest request;
  request.options = read_generation_options(fields, limits);
  request.options.max_tokens = read_chat_max_tokens(fields);
  request.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
  const bool logprobs = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, request_limits::logprobs);
  if (logprobs) request.options.sampling.logprobs = static_cast<int>(top.value_or(0));
  if (top && *top > 0 && !logprobs) {
    fail_field("top_logprobs", "top_logprobs is given without logprobs, which must be true");
  }
  fields.only("tools", {Json::array()}, "an empty array");
  fields.only("tool_choice", {"none", "auto"}, "none");
  fields.only("parallel_tool_calls", {true, false}, "true or false");
  fields.only("modalities", {Json::array({"text"})}, "[\"text\"]");
  request.messages = read_messages(fields.require("messages"));
  fields.finish();
  return request;
}

TokenizeRequest parse_tokenize_request(std::string_view body, const RequestLimits& limits) {
  const Json json = parse_body(body, limits);
  JsonFields fields(json, "");
  TokenizeRequest request;
  request.model = fields.string("model");
  request.prompt = fields.string("prompt");
  request.return_token_strings = fields.boolean("return_token_strs").value_or(false);
  if (request.prompt) {
    request.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  } else {
    request.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
    if (fields.find("messages") == nullptr) {
      fail_field("prompt", "prompt is missing, expected it or messages");
    }
    request.messages = read_messages(fields.require("messages"));
  }
  fields.finish();
  return request;
}

DetokenizeRequest parse_detokenize_request(std::string_view body, const RequestLimits& limits) {
  const Json json = parse_body(body, limits);
  JsonFields fields(json, "");
  DetokenizeRequest request;
  request.model = fields.string("model");
  request.tokens = read_token_ids(fields.require("tokens"), "tokens", limits);
  // Two bytes of a request can be a token of a hundred: 16 MB would become a gigabyte of text.
  if (static_cast<std::int64_t>(request.tokens.size()) > limits.max_model_len) {
    fail_field("tokens", fmt::format("tokens holds {} token ids, expected at most {}, the model's "
                                     "context",
                                     request.tokens.size(), limits.max_model_len));
  }
  fields.finish();
  return request;
}

}  // namespace octet
