#include "server/generation_fields.h"

#include <charconv>

#include <fmt/format.h>

#include "core/error.h"
#include "core/printable.h"
#include "server/answer_parts.h"
#include "server/api_error.h"

namespace octet {

namespace {

constexpr double most_temperature = 100;
constexpr double most_penalty = 2;
constexpr double most_repetition_penalty = 100;
constexpr double most_bias = 100;

void read_stop(JsonFields& fields, SamplingParams* sampling) {
  const Json* value = fields.find("stop");
  if (value == nullptr) return;
  const auto add = [&](const Json& text) {
    if (!text.is_string()) fields.fail("stop", "a string or an array of strings");
    const std::string& stop = text.get_ref<const std::string&>();
    const std::int64_t characters = count_characters(stop);
    if (characters == 0 || characters > request_limits::stop_characters) {
      fail_field("stop", fmt::format("stop holds a string of {} characters, expected 1 to {}",
                                     characters, request_limits::stop_characters));
    }
    sampling->stop.push_back(stop);
  };
  if (!value->is_array()) return add(*value);
  if (value->size() > request_limits::stops) {
    fail_field("stop", fmt::format("stop holds {} strings, expected at most {}", value->size(),
                                   request_limits::stops));
  }
  for (const Json& text : *value) add(text);
}

void read_logit_bias(JsonFields& fields, const RequestLimits& limits, SamplingParams* sampling) {
  const Json* value = fields.find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object() || value->size() > request_limits::logit_bias) {
    fields.fail("logit_bias", fmt::format("an object of at most {} token ids and their biases",
                                          request_limits::logit_bias));
  }
  for (const auto& [key, bias] : value->items()) {
    TokenId token = -1;
    const auto [stop, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || stop != key.data() + key.size() || token < 0 ||
        token >= limits.vocabulary_size) {
      fail_field("logit_bias",
                 fmt::format("logit_bias has the key {}, expected token ids from 0 to {}",
                             printable(key, 40), limits.vocabulary_size - 1));
    }
    const double number = bias.is_number() ? bias.get<double>() : most_bias + 1;
    if (!(number >= -most_bias && number <= most_bias)) {
      fail_field("logit_bias",
                 fmt::format("logit_bias of token {} is {}, expected a number from -{} to {}",
                             token, describe_value(bias), most_bias, most_bias));
    }
    sampling->logit_bias.emplace_back(token, static_cast<float>(number));
  }
}

void read_sampling(JsonFields& fields, const RequestLimits& limits, SamplingParams* sampling) {
  const auto number = [&](std::string_view name, float otherwise, double low, double high,
                          bool above = false) {
    return static_cast<float>(fields.number(name, low, high, above).value_or(otherwise));
  };
  sampling->temperature = number("temperature", 1.0f, 0, most_temperature);
  sampling->top_p = number("top_p", 1.0f, 0, 1, true);
  sampling->min_p = number("min_p", 0.0f, 0, 1);
  sampling->presence_penalty = number("presence_penalty", 0.0f, -most_penalty, most_penalty);
  sampling->frequency_penalty = number("frequency_penalty", 0.0f, -most_penalty, most_penalty);
  sampling->repetition_penalty =
      number("repetition_penalty", 1.0f, 0, most_repetition_penalty, true);
  // A float may round a tiny double to the zero that is not allowed.
  if (sampling->top_p <= 0) fields.fail("top_p", "a number that float32 tells from 0");
  if (sampling->repetition_penalty <= 0) {
    fields.fail("repetition_penalty", "a number that float32 tells from 0");
  }
  // -1 keeps all tokens as well, as in vLLM.
  sampling->top_k = std::max<std::int64_t>(0, fields.integer("top_k", -1, INT32_MAX).value_or(0));
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) {
    sampling->seed = static_cast<std::uint64_t>(*seed);
  }
  sampling->ignore_eos = fields.boolean("ignore_eos").value_or(false);
  sampling->min_tokens = fields.integer("min_tokens", 0, INT32_MAX).value_or(0);
  read_stop(fields, sampling);
  if (const Json* ids = fields.find("stop_token_ids")) {
    sampling->stop_token_ids = read_token_ids(*ids, "stop_token_ids", limits);
    if (sampling->stop_token_ids.size() > request_limits::stop_token_ids) {
      fields.fail("stop_token_ids",
                  fmt::format("at most {} token ids", request_limits::stop_token_ids));
    }
  }
  read_logit_bias(fields, limits, sampling);
}

// Labels by which a client knows its requests again; they change no answer.
void read_labels(JsonFields& fields) {
  for (const char* name : {"user", "safety_identifier", "prompt_cache_key"}) {
    if (const auto text = fields.string(name);
        text && count_characters(*text) > request_limits::label_characters) {
      fields.fail(name, fmt::format("at most {} characters", request_limits::label_characters));
    }
  }
  if (const Json* metadata = fields.find("metadata"); metadata && !metadata->is_object()) {
    fields.fail("metadata", "an object");
  }
}

void read_stream(JsonFields& fields, GenerationOptions* options) {
  options->stream = fields.boolean("stream").value_or(false);
  const Json* value = fields.find("stream_options");
  if (value == nullptr) return;
  JsonFields inner(*value, "stream_options");
  options->include_usage = inner.boolean("include_usage").value_or(false);
  // Padding against eavesdroppers on the lengths of chunks, which OpenAI adds unless told not to.
  inner.only("include_obfuscation", {false}, "false");
  inner.finish();
  if (!options->stream) {
    fail_field("stream_options", "stream_options is given without stream, which must be true");
  }
}

std::string text_of_parts(const Json& parts, const std::string& path) {
  std::string text;
  std::size_t index = 0;
  for (const Json& part : parts) {
    JsonFields fields(part, fmt::format("{}[{}]", path, index++));
    const std::string type = fields.require_string("type");
    if (type != "text") {
      fail_field(fields.path("type"), fmt::format("{} is {}, expected text, the only part that is "
                                                  "supported here",
                                                  fields.path("type"), printable(type, 40)));
    }
    text += fields.require_string("text");
    fields.finish();
  }
  return text;
}

}  // namespace

Json parse_body(std::string_view body, const RequestLimits& limits) {
  try {
    return parse_json(body, "the request's body", {.max_bytes = limits.max_json_bytes});
  } catch (const Error& error) {
    throw to_api_error(error);
  }
}

std::vector<TokenId> read_token_ids(const Json& tokens, const std::string& path,
                                    const RequestLimits& limits) {
  std::vector<TokenId> ids;
  if (!tokens.is_array()) {
    fail_field(path, fmt::format("{} is {}, expected an array of token ids", path,
                                 describe_value(tokens)));
  }
  ids.reserve(tokens.size());
  for (const Json& token : tokens) {
    const auto id = as_integer(token);
    if (!id || *id < 0 || *id >= limits.vocabulary_size) {
      fail_field(path, fmt::format("{} holds {}, expected token ids from 0 to {}", path,
                                   describe_value(token), limits.vocabulary_size - 1));
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

GenerationOptions read_generation_options(JsonFields& fields, const RequestLimits& limits) {
  GenerationOptions options;
  options.model = fields.string("model");
  read_sampling(fields, limits, &options.sampling);
  read_stream(fields, &options);
  options.choices = static_cast<int>(fields.integer("n", 1, request_limits::choices).value_or(1));
  if (const auto salt = fields.string("cache_salt")) {
    if (salt->empty() || count_characters(*salt) > request_limits::label_characters) {
      fields.fail("cache_salt",
                  fmt::format("a string of 1 to {} characters", request_limits::label_characters));
    }
    options.cache_salt = *salt;
  }
  read_labels(fields);
  fields.only("store", {false}, "false");
  fields.only("service_tier", {"auto", "default"}, "auto or default");
  fields.only("response_format", {Json{{"type", "text"}}}, "{\"type\": \"text\"}");
  fields.only("skip_special_tokens", {true}, "true");
  fields.only("spaces_between_special_tokens", {true}, "true");
  fields.only("priority", {0}, "0");
  return options;
}

std::vector<ChatMessage> read_messages(const Json& messages) {
  if (!messages.is_array() || messages.empty() ||
      messages.size() > static_cast<std::size_t>(request_limits::messages)) {
    fail_field("messages", fmt::format("messages is {}, expected an array of 1 to {} messages",
                                       describe_value(messages), request_limits::messages));
  }
  std::vector<ChatMessage> list;
  for (const Json& message : messages) {
    JsonFields fields(message, fmt::format("messages[{}]", list.size()));
    ChatMessage read;
    read.role = fields.require_string("role");
    if (read.role != "system" && read.role != "developer" && read.role != "user" &&
        read.role != "assistant") {
      fields.fail("role", "system, developer, user or assistant");
    }
    const Json& content = fields.require("content");
    if (content.is_string()) {
      read.content = content.get<std::string>();
    } else if (content.is_array()) {
      read.content = text_of_parts(content, fields.path("content"));
    } else {
      fields.fail("content", "a string or an array of text parts");
    }
    // What a client sends back of an earlier answer of ours.
    fields.only("refusal", {}, "null");
    fields.only("tool_calls", {Json::array()}, "an empty array");
    fields.finish();
    list.push_back(std::move(read));
  }
  return list;
}

}  // namespace octet
