// How completions and chat completions word an answer, whole and in chunks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/request.h"
#include "text/tokenizer.h"

namespace octet {

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompts
};

// A prompt that is put before its answer.
struct Echo {
  std::string text;
  std::vector<TokenId> tokens;
};

struct AnswerHead {
  std::string id;            // "cmpl-..." or "chatcmpl-..."
  std::string model;         // as the request called it
  std::int64_t created = 0;  // seconds since 1970
  bool include_usage = false;
};

// The answers to one request, one for each index. chunk() is for streams; accept() and whole() for
// an answer in one piece; a request uses one of the two ways.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // The JSON of the chunk that brings this event; "" where it has nothing to show yet.
  virtual std::string chunk(int index, const TokenEvent& event) = 0;
  // The JSON of the last chunk, where the request wants one.
  virtual std::string usage_chunk(const Usage& usage) const = 0;

  virtual void accept(int index, TokenEvent&& event) = 0;
  virtual std::string whole(const Usage& usage) = 0;
};

// `tokenizer` outlives the format. `echoes` are put before the answers: one for each index, or
// none.
std::unique_ptr<AnswerFormat> make_chat_format(AnswerHead head, const Tokenizer& tokenizer,
                                               int answers, bool logprobs);
std::unique_ptr<AnswerFormat> make_completion_format(AnswerHead head, const Tokenizer& tokenizer,
                                                     int answers, bool logprobs,
                                                     std::vector<Echo> echoes);

}  // namespace octet
