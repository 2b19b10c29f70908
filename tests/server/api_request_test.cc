// What a request's JSON may say, and what is told about what it may not.
#include "server/api_request.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/api_error.h"

namespace octet {
namespace {

const RequestLimits limits{.max_model_len = 512, .vocabulary_size = 300};

CompletionRequest completion(const std::string& fields) {
  return parse_completion_request(R"({"prompt":"a")" + (fields.empty() ? "" : "," + fields) + "}",
                                  limits);
}
ChatRequest chat(const std::string& fields) {
  return parse_chat_request(
      R"({"messages":[{"role":"user","content":"a"}])" + (fields.empty() ? "" : "," + fields) + "}",
      limits);
}

// The ApiError that a parse ends with; its message must name the field.
template <typename Parse>
ApiError refusal(Parse&& parse) {
  try {
    parse();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    EXPECT_NE(std::string(error.what()).find(error.param()), std::string::npos) << error.what();
    return error;
  }
  ADD_FAILURE() << "nothing was refused";
  return ApiError(0, "");
}

TEST(ApiRequest, DefaultsAreOpenAIs) {
  const CompletionRequest request = completion("");
  EXPECT_EQ(request.options.sampling.temperature, 1.0f);
  EXPECT_EQ(request.options.sampling.top_p, 1.0f);
  EXPECT_EQ(request.options.sampling.top_k, 0);
  EXPECT_EQ(request.options.sampling.logprobs, -1);
  EXPECT_EQ(request.options.choices, 1);
  EXPECT_FALSE(request.options.stream);
  EXPECT_FALSE(request.options.max_tokens.has_value());
  EXPECT_FALSE(request.options.sampling.seed.has_value());
  // null is the same as nothing.
  const CompletionRequest nulls = completion(
      R"("n":null,"stop":null,"logprobs":null,"stream_options":null,"suffix":null,"user":null)");
  EXPECT_EQ(nulls.options.choices, 1);
  EXPECT_EQ(nulls.options.sampling.logprobs, -1);
}

TEST(ApiRequest, FieldsArriveWhereTheyBelong) {
  const ChatRequest request = chat(
      R"("temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.125,"presence_penalty":-2,
         "frequency_penalty":2,"repetition_penalty":1.5,"seed":-1,"n":3,"stop":["x","y"],
         "stop_token_ids":[4],"ignore_eos":true,"min_tokens":2,"logit_bias":{"5":-100,"6":1.5},
         "max_completion_tokens":9,"logprobs":true,"top_logprobs":20,"cache_salt":"s",
         "stream":true,"stream_options":{"include_usage":true},"user":"me")");
  const SamplingParams& sampling = request.options.sampling;
  EXPECT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_p, 0.25f);
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_EQ(sampling.min_p, 0.125f);
  EXPECT_EQ(sampling.presence_penalty, -2.0f);
  EXPECT_EQ(sampling.frequency_penalty, 2.0f);
  EXPECT_EQ(sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(sampling.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(sampling.stop_token_ids, std::vector<TokenId>{4});
  EXPECT_TRUE(sampling.ignore_eos);
  EXPECT_EQ(sampling.min_tokens, 2);
  ASSERT_EQ(sampling.logit_bias.size(), 2u);
  EXPECT_EQ(sampling.logit_bias[1], (std::pair<TokenId, float>{6, 1.5f}));
  EXPECT_EQ(sampling.logprobs, 20);
  EXPECT_EQ(request.options.max_tokens, 9);
  EXPECT_EQ(request.options.choices, 3);
  EXPECT_EQ(request.options.cache_salt, "s");
  EXPECT_TRUE(request.options.include_usage);
}

TEST(ApiRequest, PromptsInAllForms) {
  const auto prompts = [](const std::string& prompt) {
    return parse_completion_request("{\"prompt\":" + prompt + "}", limits).prompts;
  };
  EXPECT_EQ(prompts("\"a\""), std::vector<PromptInput>{std::string("a")});
  EXPECT_EQ(prompts(R"(["a","b"])"),
            (std::vector<PromptInput>{std::string("a"), std::string("b")}));
  EXPECT_EQ(prompts("[1,2.0]"), (std::vector<PromptInput>{std::vector<TokenId>{1, 2}}));
  EXPECT_EQ(prompts("[[1],[2,3]]"),
            (std::vector<PromptInput>{std::vector<TokenId>{1}, std::vector<TokenId>{2, 3}}));
  for (const char* wrong : {"7", "{}", "[]", "[true]", "[1,\"a\"]", "[\"a\",1]", "[[1],2]", "[300]",
                            "[-1]", "[1.5]", "[99999999999999999999]", "[[\"a\"]]"}) {
    EXPECT_EQ(refusal([&] { prompts(wrong); }).param().substr(0, 6), "prompt") << wrong;
  }
  // As many answers as there may be, and one more.
  EXPECT_EQ(completion(R"("n":128)").options.choices, 128);
  EXPECT_EQ(
      refusal([&] { parse_completion_request(R"({"prompt":["a","b"],"n":65})", limits); }).param(),
      "n");
}

TEST(ApiRequest, ContentMayComeInTextParts) {
  const ChatRequest request = parse_chat_request(
      R"({"messages":[{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
          {"role":"user","content":"c"}]})",
      limits);
  EXPECT_EQ(request.messages[0].content, "ab");
  EXPECT_EQ(request.messages[1].role, "user");
  EXPECT_EQ(
      refusal([] {
        parse_chat_request(
            R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})",
            limits);
      }).param(),
      "messages[0].content[0].type");
  EXPECT_EQ(refusal([] {
              parse_chat_request(R"({"messages":[{"role":"root","content":"a"}]})", limits);
            }).param(),
            "messages[0].role");
}

struct Wrong {
  const char* field;
  const char* value;
};

TEST(ApiRequest, ValuesOutOfRangeAreRefusedByName) {
  for (const Wrong& wrong : std::vector<Wrong>{{"temperature", "-0.1"},
                                               {"temperature", "1e300"},
                                               {"temperature", "\"1\""},
                                               {"top_p", "0"},
                                               {"top_p", "1.01"},
                                               {"top_p", "1e-60"},
                                               {"top_k", "-2"},
                                               {"top_k", "1.5"},
                                               {"top_k", "99999999999999999999"},
                                               {"min_p", "-1"},
                                               {"n", "0"},
                                               {"n", "129"},
                                               {"n", "true"},
                                               {"seed", "1e30"},
                                               {"seed", "0.5"},
                                               {"seed", "18446744073709551615"},
                                               {"presence_penalty", "2.5"},
                                               {"frequency_penalty", "-3"},
                                               {"repetition_penalty", "0"},
                                               {"repetition_penalty", "-1"},
                                               {"max_tokens", "0"},
                                               {"max_tokens", "-5"},
                                               {"max_tokens", "4294967296"},
                                               {"stop", "\"\""},
                                               {"stop", "[1]"},
                                               {"stop", "{}"},
                                               {"stop_token_ids", "[300]"},
                                               {"stop_token_ids", "3"},
                                               {"logit_bias", "[]"},
                                               {"logit_bias", "{\"a\":1}"},
                                               {"logit_bias", "{\"300\":1}"},
                                               {"logit_bias", "{\"1\":101}"},
                                               {"logit_bias", "{\"1\":null}"},
                                               {"logit_bias", "{\"-1\":1}"},
                                               {"stream", "1"},
                                               {"ignore_eos", "\"yes\""},
                                               {"cache_salt", "\"\""},
                                               {"user", "7"},
                                               {"metadata", "[]"},
                                               {"store", "true"},
                                               {"service_tier", "\"flex\""},
                                               {"response_format", "{\"type\":\"json_object\"}"},
                                               {"skip_special_tokens", "false"},
                                               {"min_tokens", "-1"}}) {
    const std::string field = fmt::format("\"{}\":{}", wrong.field, wrong.value);
    EXPECT_EQ(refusal([&] { completion(field); }).param(), wrong.field) << field;
    EXPECT_EQ(refusal([&] { chat(field); }).param(), wrong.field) << field;
  }
  EXPECT_EQ(refusal([] { completion("\"logprobs\":21"); }).param(), "logprobs");
  EXPECT_EQ(refusal([] { completion("\"best_of\":2"); }).param(), "best_of");
  EXPECT_EQ(refusal([] { completion("\"suffix\":\"x\""); }).param(), "suffix");
  EXPECT_EQ(refusal([] { chat("\"top_logprobs\":3"); }).param(), "top_logprobs");
  EXPECT_EQ(refusal([] { chat("\"tools\":[{}]"); }).param(), "tools");
  EXPECT_EQ(refusal([] { chat("\"max_tokens\":3,\"max_completion_tokens\":4"); }).param(),
            "max_completion_tokens");
  EXPECT_EQ(refusal([] { chat("\"stream_options\":{\"include_usage\":true}"); }).param(),
            "stream_options");
}

TEST(ApiRequest, UnknownFieldsAreRefusedByName) {
  EXPECT_EQ(refusal([] { completion("\"best\":1"); }).param(), "best");
  EXPECT_EQ(refusal([] { chat("\"functions\":[]"); }).param(), "functions");
  EXPECT_EQ(refusal([] { chat(R"("stream":true,"stream_options":{"usage":true})"); }).param(),
            "stream_options.usage");
  EXPECT_EQ(refusal([] {
              parse_chat_request(R"({"messages":[{"role":"user","content":"a","name":"b"}]})",
                                 limits);
            }).param(),
            "messages[0].name");
  // One that is null too: to take it would be to promise what it means.
  EXPECT_EQ(refusal([] { chat("\"guided_json\":null"); }).param(), "guided_json");
}

TEST(ApiRequest, HostileBodies) {
  const auto fails = [](const std::string& body) {
    return refusal([&] { parse_completion_request(body, limits); });
  };
  fails("");
  fails("[]");
  fails("null");
  fails("{\"prompt\":\"a\"} x");
  fails(R"({"prompt":"a","n":NaN})");
  fails(R"({"prompt":"a","temperature":Infinity})");
  fails(R"({"prompt":"a","temperature":1e999})");
  fails("{\"prompt\":\"\xff\xfe\"}");
  fails(R"({"prompt":"\ud800"})");
  fails(R"({"prompt":"a","prompt":"b"})");
  fails(R"({"prompt":"a","n":1,"n":2})");
  fails(std::string(3000, '[') + std::string(3000, ']'));
  fails("{\"prompt\":" + std::string(3000, '[') + std::string(3000, ']') + "}");
  std::string many = R"({"prompt":"a")";
  for (int i = 0; i < 100'000; ++i) many += ",\"f" + std::to_string(i) + "\":0";
  fails(many + "}");
  RequestLimits small = limits;
  small.max_json_bytes = 100;
  refusal(
      [&] { parse_completion_request("{\"prompt\":\"" + std::string(200, 'a') + "\"}", small); });
}

TEST(ApiRequest, EchoAloneMayAskForNoTokens) {
  const CompletionRequest request = completion("\"echo\":true,\"max_tokens\":0");
  EXPECT_EQ(request.options.max_tokens, 0);
  EXPECT_EQ(request.options.sampling.prompt_logprobs, 0);
  EXPECT_EQ(request.options.sampling.logprobs, -1);
  EXPECT_EQ(completion("\"echo\":true,\"logprobs\":5").options.sampling.prompt_logprobs, 5);
}

TEST(ApiRequest, Tokenize) {
  EXPECT_EQ(parse_tokenize_request(R"({"prompt":"a"})", limits).prompt, "a");
  EXPECT_EQ(parse_tokenize_request(R"({"messages":[{"role":"user","content":"a"}]})", limits)
                .messages.size(),
            1u);
  EXPECT_EQ(refusal([] { parse_tokenize_request("{}", limits); }).param(), "prompt");
  EXPECT_EQ(parse_detokenize_request(R"({"tokens":[1,2]})", limits).tokens,
            (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(refusal([] { parse_detokenize_request(R"({"tokens":[300]})", limits); }).param(),
            "tokens");
  std::string many = R"({"tokens":[1)";
  for (std::int64_t i = 1; i < limits.max_model_len; ++i) many += ",1";
  EXPECT_EQ(static_cast<std::int64_t>(parse_detokenize_request(many + "]}", limits).tokens.size()),
            limits.max_model_len);
  EXPECT_EQ(refusal([&] { parse_detokenize_request(many + ",1]}", limits); }).param(), "tokens");
}

}  // namespace
}  // namespace octet
