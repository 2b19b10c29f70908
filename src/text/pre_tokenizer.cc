#include "text/pre_tokenizer.h"

#include <string>

#include "core/error.h"
#include "core/printable.h"
#include "text/pre_tokenizer_patterns.h"

namespace octet {
namespace {

// "default" is what converters wrote before they knew patterns by name: GPT-2's own. GGUF does not
// say whether a text is normalised; the tokenizer.json of the Qwen2 family does.
constexpr PreTokenizer pre_tokenizers[] = {
    {"gpt-2", false, gpt2_piece_end},
    {"default", false, gpt2_piece_end},
    {"smollm", false, smollm_piece_end},
    {"qwen2", true, qwen2_piece_end},
};

}  // namespace

const PreTokenizer& find_pre_tokenizer(std::string_view name, std::string_view source) {
  std::string known;
  for (const PreTokenizer& candidate : pre_tokenizers) {
    if (candidate.name == name) return candidate;
    known += fmt::format("{}'{}'", known.empty() ? "" : ", ", candidate.name);
  }
  throw_unsupported("{}: tokenizer.ggml.pre is {}, but octet splits text as one of {} only", source,
                    printable(name), known);
}

}  // namespace octet
