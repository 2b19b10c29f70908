#include "server/answer_parts.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/printable.h"

namespace octet {

Json usage_json(const Usage& usage) {
  Json json;
  json["prompt_tokens"] = usage.prompt_tokens;
  json["completion_tokens"] = usage.completion_tokens;
  json["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  json["prompt_tokens_details"]["cached_tokens"] = usage.cached_tokens;
  return json;
}

Json finish_reason_json(FinishReason reason) {
  if (reason == FinishReason::none) return nullptr;
  return name_of(reason);
}

Json whole_head(const AnswerHead& head, std::string_view object) {
  Json json;
  json["id"] = head.id;
  json["object"] = std::string(object);
  json["created"] = head.created;
  json["model"] = head.model;
  return json;
}

std::string chunk_start(const AnswerHead& head, std::string_view object) {
  std::string text = dump_json(whole_head(head, object));
  text.pop_back();  // the brace that ends the object
  return text + ",\"choices\":[";
}

std::string chunk_of(const std::string& start, const std::string& choice, bool include_usage) {
  return fmt::format("{}{}]{}}}", start, choice, include_usage ? ",\"usage\":null" : "");
}

std::string last_chunk(const std::string& start, const Usage& usage) {
  return fmt::format("{}],\"usage\":{}}}", start, dump_json(usage_json(usage)));
}

std::string token_name(const Tokenizer& tokenizer, TokenId token) {
  const std::string_view bytes = tokenizer.token_bytes(token);
  if (is_valid_utf8(bytes)) return std::string(bytes);
  std::string name = "bytes:";
  for (const char byte : bytes) {
    name += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return name;
}

float finite_logprob(float logprob) { return std::max(logprob, -9999.0f); }

std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace octet
