#include "text/gguf_pre_tokenizer.h"

#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/printable.h"
#include "text/pre_tokenizer_patterns.h"

namespace octet {
namespace {

// "default" is what converters wrote before they knew patterns by name: GPT-2's own. GGUF does not
// say whether a text is normalised, nor whether merges are ignored for whole words; the
// tokenizer.json of each family does.
constexpr GgufPreTokenizer families[] = {
    {.name = "gpt-2", .piece_end = gpt2_piece_end},
    {.name = "default", .piece_end = gpt2_piece_end},
    {.name = "mpt", .piece_end = gpt2_piece_end, .normalizes_nfc = true},
    {.name = "smollm", .piece_end = smollm_piece_end},
    {.name = "starcoder", .piece_end = smollm_piece_end},
    {.name = "refact", .piece_end = smollm_piece_end},
    {.name = "command-r", .piece_end = smollm_piece_end, .normalizes_nfc = true},
    {.name = "llama-bpe",
     .piece_end = llama3_piece_end,
     .ignores_merges = true,
     .adds_beginning_of_text = true},
    {.name = "llama3",
     .piece_end = llama3_piece_end,
     .ignores_merges = true,
     .adds_beginning_of_text = true},
    {.name = "qwen2", .piece_end = qwen2_piece_end, .normalizes_nfc = true},
    {.name = "deepseek-r1-qwen", .piece_end = qwen2_piece_end, .normalizes_nfc = true},
    {.name = "qwen35", .piece_end = qwen35_piece_end, .normalizes_nfc = true},
    {.name = "gpt-4o", .piece_end = o200k_piece_end, .ignores_merges = true},
    {.name = "kimi-k2", .piece_end = kimi_piece_end, .ignores_merges = true},
    {.name = "deepseek-v3",
     .patterns = {R"re(\p{N}{1,3})re", "[一-龥\u3040-ゟ゠-ヿ]+",
                  R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)re"
                  R"re(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)re"
                  R"re(|\s*[\r\n]+|\s+(?!\S)|\s+)re"}},
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
  std::vector<PreTokenizer::Step> steps;
  if (family.piece_end != nullptr) steps.push_back({.piece_end = family.piece_end});
  for (const std::string_view pattern : family.patterns) {
    if (!pattern.empty()) steps.push_back(make_split_step(pattern, family.name));
  }
  return PreTokenizer(std::move(steps));
}

}  // namespace octet
