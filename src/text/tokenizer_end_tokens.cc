#include "text/tokenizer_end_tokens.h"

#include <algorithm>
#include <string_view>

namespace octet {
namespace {

// Tokens that only separate parts of one answer are left out: <|eot|>-like names of reasoning
// parts, fill-in-the-middle and file separators. Harmony's <|end|> closes a message, not an answer.
constexpr std::string_view end_spellings[] = {
    "<|endoftext|>",  // GPT-2, Qwen, SmolLM2, gpt-oss: end of a document
    "<|im_end|>",     // ChatML (Qwen, SmolLM2, Kimi): end of a turn
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",  // Llama 3: end of text, turn, message
    "<|return|>",
    "<|call|>",  // gpt-oss: end of the answer, hand-over to a tool
    "</s>",      // SentencePiece: end of text
    "<eos>",
    "<end_of_turn>",
    "<turn|>",  // Gemma: end of text; of turn in 2 and 3, in 4
    "[EOS]",
    "[EOT]",  // Kimi: end of text, of turn
};

}  // namespace

std::vector<TokenId> find_end_tokens(const Tokenizer& tokenizer,
                                     std::span<const TokenId> declared) {
  std::vector<TokenId> ids;
  const auto add = [&](TokenId id) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  };
  for (const TokenId id : declared) add(id);
  for (const std::string_view spelling : end_spellings) {
    const std::optional<TokenId> id = tokenizer.find_token(spelling);
    if (id && tokenizer.is_special(*id)) add(*id);
  }
  return ids;
}

}  // namespace octet
