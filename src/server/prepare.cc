#include "server/prepare.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/json.h"
#include "core/printable.h"
#include "server/api_error.h"

namespace octet {

namespace {

// OpenAI's.
constexpr std::int64_t default_completion_tokens = 16;

// The name as the answer repeats it.
std::string check_model(const std::optional<std::string>& asked, const ApiOptions& options) {
  const std::vector<std::string>& names = options.model_names;
  if (!asked) return names.front();
  if (std::find(names.begin(), names.end(), *asked) == names.end()) {
    throw ApiError(404,
                   fmt::format("the model {} does not exist here, expected {}", printable(*asked),
                               names.front()),
                   "model", "model_not_found");
  }
  return *asked;
}

std::string random_hex() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}", device(), device(), device());
}

AnswerHead make_head(const char* prefix, const GenerationOptions& options, std::string model) {
  AnswerHead head;
  head.id = prefix + random_hex();
  head.model = std::move(model);
  head.created = std::chrono::duration_cast<std::chrono::seconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count();
  head.include_usage = options.include_usage;
  return head;
}

// How long the answer to a prompt may become. An answer that would have to be cut short of what was
// asked for is refused.
std::int64_t answer_tokens(const GenerationOptions& options, std::int64_t otherwise,
                           std::size_t prompt_tokens, std::int64_t max_model_len) {
  const auto prompt = static_cast<std::int64_t>(prompt_tokens);
  const std::int64_t room = max_model_len - prompt;
  if (prompt == 0)
    throw ApiError(400, "the prompt is empty, expected at least one token", "prompt");
  if (room < 1) fail_too_long(prompt, max_model_len);
  const std::int64_t wanted = options.max_tokens.value_or(std::min(otherwise, room));
  if (wanted > room) {
    throw ApiError(400,
                   fmt::format("max_tokens is {}, and the prompt's {} tokens leave room for {} in "
                               "the model's context of {}",
                               wanted, prompt, room, max_model_len),
                   "max_tokens", "context_length_exceeded");
  }
  if (options.sampling.min_tokens > wanted) {
    throw ApiError(400,
                   fmt::format("min_tokens is {}, expected at most max_tokens, {}",
                               options.sampling.min_tokens, wanted),
                   "min_tokens");
  }
  return wanted;
}

// One request for each answer; with a seed each answer has one of its own.
void add_requests(const GenerationOptions& options, std::vector<TokenId> prompt,
                  std::int64_t max_tokens, std::vector<GenerateRequest>* requests) {
  for (int choice = 0; choice < options.choices; ++choice) {
    GenerateRequest request;
    request.prompt = choice + 1 < options.choices ? prompt : std::move(prompt);
    request.sampling = options.sampling;
    request.sampling.max_tokens = max_tokens;
    if (request.sampling.seed) *request.sampling.seed += static_cast<std::uint64_t>(choice);
    request.cache_salt = options.cache_salt;
    requests->push_back(std::move(request));
  }
}

PreparedGeneration begin(const GenerationOptions& options) {
  PreparedGeneration prepared;
  prepared.choices = options.choices;
  prepared.stream = options.stream;
  prepared.include_usage = options.include_usage;
  return prepared;
}

}  // namespace

PreparedGeneration prepare_completion(std::string_view body, const ModelText& text,
                                      const ApiOptions& options) {
  CompletionRequest request = parse_completion_request(body, options.limits);
  const std::string model = check_model(request.options.model, options);
  PreparedGeneration prepared = begin(request.options);
  std::vector<Echo> echoes;
  for (PromptInput& prompt : request.prompts) {
    std::vector<TokenId> tokens;
    const auto* prompt_text = std::get_if<std::string>(&prompt);
    if (prompt_text != nullptr) {
      tokens = text.encode_prompt(*prompt_text, request.add_special_tokens);
    } else {
      tokens = std::move(std::get<std::vector<TokenId>>(prompt));
    }
    const std::int64_t max_tokens = answer_tokens(request.options, default_completion_tokens,
                                                  tokens.size(), text.max_model_len());
    if (request.echo) {
      const Echo echo{prompt_text != nullptr ? *prompt_text : text.tokenizer().decode(tokens, true),
                      tokens};
      echoes.insert(echoes.end(), static_cast<std::size_t>(request.options.choices), echo);
    }
    add_requests(request.options, std::move(tokens), max_tokens, &prepared.requests);
  }
  prepared.format =
      make_completion_format(make_head("cmpl-", request.options, model), text.tokenizer(),
                             static_cast<int>(prepared.requests.size()),
                             request.options.sampling.logprobs >= 0, std::move(echoes));
  return prepared;
}

PreparedGeneration prepare_chat(std::string_view body, const ModelText& text,
                                const ApiOptions& options) {
  const ChatRequest request = parse_chat_request(body, options.limits);
  const std::string model = check_model(request.options.model, options);
  PreparedGeneration prepared = begin(request.options);
  std::vector<TokenId> tokens = text.encode_chat(request.messages, request.add_generation_prompt);
  const std::int64_t max_tokens =
      answer_tokens(request.options, text.max_model_len(), tokens.size(), text.max_model_len());
  add_requests(request.options, std::move(tokens), max_tokens, &prepared.requests);
  prepared.format =
      make_chat_format(make_head("chatcmpl-", request.options, model), text.tokenizer(),
                       request.options.choices, request.options.sampling.logprobs >= 0);
  return prepared;
}

std::string answer_tokenize(std::string_view body, const ModelText& text,
                            const ApiOptions& options) {
  const TokenizeRequest request = parse_tokenize_request(body, options.limits);
  check_model(request.model, options);
  const std::vector<TokenId> tokens =
      request.prompt ? text.encode_prompt(*request.prompt, request.add_special_tokens)
                     : text.encode_chat(request.messages, request.add_generation_prompt);
  Json json;
  json["count"] = tokens.size();
  json["max_model_len"] = text.max_model_len();
  json["tokens"] = tokens;
  json["token_strs"] = nullptr;
  if (request.return_token_strings) {
    json["token_strs"] = Json::array();
    for (const TokenId token : tokens) {
      json["token_strs"].push_back(std::string(text.tokenizer().token_text(token)));
    }
  }
  return dump_json(json);
}

std::string answer_detokenize(std::string_view body, const ModelText& text,
                              const ApiOptions& options) {
  const DetokenizeRequest request = parse_detokenize_request(body, options.limits);
  check_model(request.model, options);
  Json json;
  json["prompt"] = text.tokenizer().decode(request.tokens, true);
  return dump_json(json);
}

}  // namespace octet
