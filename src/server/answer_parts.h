// Pieces of JSON that both forms of answer have.
#pragma once

#include <string>
#include <string_view>

#include "core/json.h"
#include "server/answer_format.h"

namespace octet {

Json usage_json(const Usage& usage);

// "stop" or "length", and null while an answer goes on. An answer that ended otherwise is an error,
// not an answer (generation.h).
Json finish_reason_json(FinishReason reason);

// What a chunk has in common with all others of its stream: everything up to its choices.
std::string chunk_start(const AnswerHead& head, std::string_view object);
// A chunk of one choice, which dump_json() made.
std::string chunk_of(const std::string& start, const std::string& choice, bool include_usage);
std::string last_chunk(const std::string& start, const Usage& usage);

Json whole_head(const AnswerHead& head, std::string_view object);

// A token for a list of log-probabilities: its text, or "bytes:\xf0\x9f" where it is no text by
// itself, as OpenAI spells it.
std::string token_name(const Tokenizer& tokenizer, TokenId token);
// JSON has no infinity: what is impossible has the log-probability -9999, as in OpenAI's API.
float finite_logprob(float logprob);
// How many characters it has in such a list, for text_offset.
std::int64_t count_characters(std::string_view text);

}  // namespace octet
