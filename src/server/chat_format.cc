#include <utility>

#include "server/answer_format.h"
#include "server/answer_parts.h"

namespace octet {

namespace {

class ChatFormat : public AnswerFormat {
 public:
  ChatFormat(AnswerHead head, const Tokenizer& tokenizer, int answers, bool logprobs)
      : head_(std::move(head)),
        tokenizer_(&tokenizer),
        logprobs_(logprobs),
        start_(chunk_start(head_, "chat.completion.chunk")),
        answers_(static_cast<std::size_t>(answers)) {}

  std::string chunk(int index, const TokenEvent& event) override {
    Answer& answer = answers_[static_cast<std::size_t>(index)];
    const bool shows = !event.text.empty() || event.finished != FinishReason::none ||
                       (logprobs_ && event.logprobs);
    if (!shows) return {};
    Json choice;
    choice["index"] = index;
    Json& delta = choice["delta"];
    delta = Json::object();
    // The role comes with the first text rather than ahead of it, so that a client that takes the
    // first chunk's time takes the first token's.
    if (!std::exchange(answer.begun, true)) delta["role"] = "assistant";
    if (!event.text.empty() || delta.contains("role")) delta["content"] = event.text;
    choice["logprobs"] = nullptr;
    if (logprobs_ && event.logprobs) choice["logprobs"] = logprobs_of({entry_of(event)});
    choice["finish_reason"] = finish_reason_json(event.finished);
    return chunk_of(start_, dump_json(choice), head_.include_usage);
  }

  std::string usage_chunk(const Usage& usage) const override { return last_chunk(start_, usage); }

  void accept(int index, TokenEvent&& event) override {
    Answer& answer = answers_[static_cast<std::size_t>(index)];
    answer.text += event.text;
    if (logprobs_ && event.logprobs) answer.logprobs.push_back(entry_of(event));
    answer.finished = event.finished;
  }

  std::string whole(const Usage& usage) override {
    Json json = whole_head(head_, "chat.completion");
    json["choices"] = Json::array();
    int index = 0;
    for (Answer& answer : answers_) {
      Json choice;
      choice["index"] = index++;
      choice["message"]["role"] = "assistant";
      choice["message"]["content"] = std::move(answer.text);
      choice["message"]["refusal"] = nullptr;
      choice["logprobs"] = nullptr;
      if (logprobs_) choice["logprobs"] = logprobs_of(std::move(answer.logprobs));
      choice["finish_reason"] = finish_reason_json(answer.finished);
      json["choices"].push_back(std::move(choice));
    }
    json["usage"] = usage_json(usage);
    return dump_json(json);
  }

 private:
  struct Answer {
    bool begun = false;
    std::string text;
    std::vector<Json> logprobs;
    FinishReason finished = FinishReason::none;
  };

  Json token_json(TokenId token, float logprob) const {
    Json json;
    json["token"] = token_name(*tokenizer_, token);
    json["logprob"] = finite_logprob(logprob);
    json["bytes"] = Json::array();
    for (const char byte : tokenizer_->token_bytes(token)) {
      json["bytes"].push_back(static_cast<unsigned char>(byte));
    }
    return json;
  }

  Json entry_of(const TokenEvent& event) const {
    Json entry = token_json(event.token, event.logprobs->logprob);
    entry["top_logprobs"] = Json::array();
    for (const auto& [token, logprob] : event.logprobs->top) {
      entry["top_logprobs"].push_back(token_json(token, logprob));
    }
    return entry;
  }

  static Json logprobs_of(std::vector<Json> entries) {
    Json json;
    json["content"] = Json::array();
    for (Json& entry : entries) json["content"].push_back(std::move(entry));
    json["refusal"] = nullptr;
    return json;
  }

  AnswerHead head_;
  const Tokenizer* tokenizer_;
  bool logprobs_;
  std::string start_;
  std::vector<Answer> answers_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_chat_format(AnswerHead head, const Tokenizer& tokenizer,
                                               int answers, bool logprobs) {
  return std::make_unique<ChatFormat>(std::move(head), tokenizer, answers, logprobs);
}

}  // namespace octet
