#include "text/gguf_pre_tokenizer.h"

#include <string>

#include "core/error.h"
#include "core/printable.h"
#include "text/pre_tokenizer_patterns.h"

namespace octet {
namespace {

// "default" is what converters wrote before they knew patterns by name: GPT-2's own. GGUF does not
// say whether a text is normalised; the tokenizer.json of the Qwen2 family does.
constexpr GgufPreTokenizer families[] = {
    {.name = "gpt-2", .piece_end = gpt2_piece_end},
    {.name = "default", .piece_end = gpt2_piece_end},
    {.name = "smollm", .piece_end = smollm_piece_end},
    {.name = "qwen2", .piece_end = qwen2_piece_end, .normalizes_nfc = true},
};

}  // namespace

const GgufPreTokenizer& find_gguf_pre_tokenizer(std::string_view name, std::string_view source) {
  std::string known;
  for (const GgufPreTokenizer& candidate : families) {
    if (candidate.name == name) return candidate;
    known += fmt::format("{}'{}'", known.empty() ? "" : ", ", candidate.name);
  }
  throw_unsupported("{}: tokenizer.ggml.pre is {}, but octet splits text as one of {} only", source,
                    printable(name), known);
}

PreTokenizer make_pre_tokenizer(const GgufPreTokenizer& family) {
  return PreTokenizer({family.piece_end});
}

}  // namespace octet
