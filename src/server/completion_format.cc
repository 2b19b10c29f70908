#include <utility>

#include "server/answer_format.h"
#include "server/answer_parts.h"

namespace octet {

namespace {

// OpenAI's four parallel lists.
struct LogprobLists {
  Json tokens = Json::array();
  Json token_logprobs = Json::array();
  Json top_logprobs = Json::array();
  Json text_offset = Json::array();

  bool empty() const { return tokens.empty(); }
  Json take() {
    Json json;
    json["tokens"] = std::move(tokens);
    json["token_logprobs"] = std::move(token_logprobs);
    json["top_logprobs"] = std::move(top_logprobs);
    json["text_offset"] = std::move(text_offset);
    *this = LogprobLists();
    return json;
  }
};

class CompletionFormat : public AnswerFormat {
 public:
  CompletionFormat(AnswerHead head, const Tokenizer& tokenizer, int answers, bool logprobs,
                   std::vector<Echo> echoes)
      : head_(std::move(head)),
        tokenizer_(&tokenizer),
        logprobs_(logprobs),
        start_(chunk_start(head_, "text_completion")),
        answers_(static_cast<std::size_t>(answers)) {
    for (std::size_t i = 0; i < echoes.size(); ++i) answers_[i].echo = std::move(echoes[i]);
  }

  std::string chunk(int index, const TokenEvent& event) override {
    Answer& answer = answers_[static_cast<std::size_t>(index)];
    add(answer, event);
    // The prompt's log-probabilities come in parts before the first token: they wait for it.
    const bool shows = !answer.text.empty() || event.finished != FinishReason::none ||
                       (event.token >= 0 && !answer.logprobs.empty());
    if (!shows) return {};
    return chunk_of(start_, dump_json(choice_of(index, answer)), head_.include_usage);
  }

  std::string usage_chunk(const Usage& usage) const override { return last_chunk(start_, usage); }

  void accept(int index, TokenEvent&& event) override {
    add(answers_[static_cast<std::size_t>(index)], event);
  }

  std::string whole(const Usage& usage) override {
    Json json = whole_head(head_, "text_completion");
    json["choices"] = Json::array();
    int index = 0;
    for (Answer& answer : answers_) json["choices"].push_back(choice_of(index++, answer));
    json["usage"] = usage_json(usage);
    return dump_json(json);
  }

 private:
  struct Answer {
    Echo echo;
    std::string text;                 // not shown yet
    LogprobLists logprobs;            // likewise
    std::int64_t offset = 0;          // in characters, of the next token's name
    std::size_t prompt_logprobs = 0;  // taken
    FinishReason finished = FinishReason::none;
    bool begun = false;
  };

  void add(Answer& answer, const TokenEvent& event) {
    if (!std::exchange(answer.begun, true) && !answer.echo.tokens.empty()) {
      answer.text += answer.echo.text;
      if (logprobs_) add_token(answer, answer.echo.tokens.front(), nullptr);
    }
    for (const TokenLogprobs& logprobs : event.prompt_logprobs) {
      add_token(answer, answer.echo.tokens.at(++answer.prompt_logprobs), &logprobs);
    }
    answer.text += event.text;
    if (logprobs_ && event.logprobs) add_token(answer, event.token, &*event.logprobs);
    if (event.finished != FinishReason::none) answer.finished = event.finished;
  }

  // The first token of a prompt has no log-probability.
  void add_token(Answer& answer, TokenId token, const TokenLogprobs* logprobs) {
    std::string name = token_name(*tokenizer_, token);
    LogprobLists& lists = answer.logprobs;
    lists.text_offset.push_back(answer.offset);
    answer.offset += count_characters(name);
    if (logprobs == nullptr) {
      lists.token_logprobs.push_back(nullptr);
      lists.top_logprobs.push_back(nullptr);
    } else {
      lists.token_logprobs.push_back(finite_logprob(logprobs->logprob));
      Json top = Json::object();
      for (const auto& [other, logprob] : logprobs->top) {
        top[token_name(*tokenizer_, other)] = finite_logprob(logprob);
      }
      // The token itself is there even where others are more likely.
      top[name] = finite_logprob(logprobs->logprob);
      lists.top_logprobs.push_back(std::move(top));
    }
    lists.tokens.push_back(std::move(name));
  }

  Json choice_of(int index, Answer& answer) {
    Json choice;
    choice["index"] = index;
    choice["text"] = std::exchange(answer.text, std::string());
    choice["logprobs"] = nullptr;
    if (logprobs_ && !answer.logprobs.empty()) choice["logprobs"] = answer.logprobs.take();
    choice["finish_reason"] = finish_reason_json(answer.finished);
    return choice;
  }

  AnswerHead head_;
  const Tokenizer* tokenizer_;
  bool logprobs_;
  std::string start_;
  std::vector<Answer> answers_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_completion_format(AnswerHead head, const Tokenizer& tokenizer,
                                                     int answers, bool logprobs,
                                                     std::vector<Echo> echoes) {
  return std::make_unique<CompletionFormat>(std::move(head), tokenizer, answers, logprobs,
                                            std::move(echoes));
}

}  // namespace octet
