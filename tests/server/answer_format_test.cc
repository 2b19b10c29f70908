// The JSON of answers, field by field.
#include "server/answer_format.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/json.h"
#include "files/gguf.h"
#include "server/answer_parts.h"
#include "support/test_models.h"

namespace octet {
namespace {

class AnswerFormatTest : public testing::Test {
 protected:
  AnswerFormatTest()
      : tokenizer_(Tokenizer::from_gguf(*GgufFile::open(data_path("models/llama_mixed.gguf")))) {
    head_.id = "id-1";
    head_.model = "small";
    head_.created = 1234;
  }

  // A token that is text by itself, and one that is half a character.
  TokenId text_token() const { return *tokenizer_->find_token("he"); }
  TokenId byte_token() const {
    for (TokenId token = 0; token < tokenizer_->vocabulary_size(); ++token) {
      if (tokenizer_->token_bytes(token) == "\xc3") return token;
    }
    throw std::runtime_error("the vocabulary lacks the byte C3");
  }

  TokenEvent event(const std::string& text, FinishReason finished = FinishReason::none) const {
    TokenEvent made;
    made.token = text_token();
    made.text = text;
    made.finished = finished;
    made.logprobs = TokenLogprobs{-0.25f, {{byte_token(), -0.125f}, {text_token(), -0.25f}}};
    return made;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  AnswerHead head_;
};

TEST_F(AnswerFormatTest, WholeChatWithLogprobs) {
  const auto format = make_chat_format(head_, *tokenizer_, 2, true);
  format->accept(1, event("B", FinishReason::stop));
  format->accept(0, event("A"));
  format->accept(0, event("a", FinishReason::length));
  const Json json = parse_json(format->whole({7, 3, 5}), "answer");
  EXPECT_EQ(json["id"], "id-1");
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["created"], 1234);
  EXPECT_EQ(json["model"], "small");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "Aa");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["choices"][1]["index"], 1);
  EXPECT_EQ(json["choices"][1]["message"]["content"], "B");
  EXPECT_EQ(json["choices"][1]["finish_reason"], "stop");
  const Json& entries = json["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0]["token"], "he");
  EXPECT_EQ(entries[0]["logprob"], -0.25);
  EXPECT_EQ(entries[0]["bytes"], Json::array({0x68, 0x65}));
  EXPECT_EQ(entries[0]["top_logprobs"][0]["token"], "bytes:\\xc3");
  EXPECT_EQ(entries[0]["top_logprobs"][0]["bytes"], Json::array({0xc3}));
  EXPECT_EQ(json["usage"]["prompt_tokens"], 7);
  EXPECT_EQ(json["usage"]["total_tokens"], 10);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 5);
}

TEST_F(AnswerFormatTest, EmptyPiecesGiveNoChunk) {
  const auto format = make_chat_format(head_, *tokenizer_, 1, false);
  EXPECT_EQ(format->chunk(0, event("")), "");
  const Json first = parse_json(format->chunk(0, event("x")), "chunk");
  EXPECT_EQ(first["choices"][0]["delta"]["role"], "assistant");
  EXPECT_FALSE(first.contains("usage"));
  const Json last = parse_json(format->chunk(0, event("", FinishReason::stop)), "chunk");
  EXPECT_EQ(last["choices"][0]["delta"], Json::object());
  EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
}

TEST_F(AnswerFormatTest, LogprobsOfEveryTokenAreStreamed) {
  const auto format = make_chat_format(head_, *tokenizer_, 1, true);
  const Json chunk = parse_json(format->chunk(0, event("")), "chunk");
  EXPECT_EQ(chunk["choices"][0]["logprobs"]["content"].size(), 1u);
}

TEST_F(AnswerFormatTest, CompletionListsWithEcho) {
  const TokenId he = text_token();
  const auto format = make_completion_format(head_, *tokenizer_, 1, true, {{"hehe", {he, he}}});
  TokenEvent prompt;
  prompt.prompt_logprobs.push_back({-2.0f, {{byte_token(), -1.0f}}});
  format->accept(0, std::move(prompt));
  format->accept(0, event("he", FinishReason::length));
  const Json json = parse_json(format->whole({2, 1, 0}), "answer");
  EXPECT_EQ(json["object"], "text_completion");
  const Json& choice = json["choices"][0];
  EXPECT_EQ(choice["text"], "hehehe");
  EXPECT_EQ(choice["logprobs"]["tokens"], Json::array({"he", "he", "he"}));
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], Json::array({nullptr, -2.0, -0.25}));
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json::array({0, 2, 4}));
  EXPECT_TRUE(choice["logprobs"]["top_logprobs"][0].is_null());
  // The token itself is listed beside the more likely ones.
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][1]["he"], -2.0);
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][1]["bytes:\\xc3"], -1.0);
}

TEST_F(AnswerFormatTest, ImpossibleTokensHaveANumber) {
  EXPECT_EQ(finite_logprob(-std::numeric_limits<float>::infinity()), -9999.0f);
  EXPECT_EQ(finite_logprob(-1.5f), -1.5f);
}

}  // namespace
}  // namespace octet
