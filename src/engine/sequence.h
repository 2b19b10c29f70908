// A request on its way through the engine.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/logit_adjustments.h"
#include "engine/request.h"
#include "engine/stop_filter.h"
#include "kv/block_table.h"
#include "text/detokenizer.h"

namespace octet {

struct Sequence {
  Sequence(RequestId request, GenerateRequest asked, std::uint64_t drawn_seed, BlockTable table,
           const Tokenizer& tokenizer)
      : id(request),
        sampling(std::move(asked.sampling)),
        cache_salt(std::move(asked.cache_salt)),
        seed(drawn_seed),
        tokens(std::move(asked.prompt)),
        prompt_tokens(static_cast<std::int64_t>(tokens.size())),
        blocks(std::move(table)),
        detokenizer(tokenizer),
        stop_filter(sampling.stop) {
    if (sampling.has_penalties()) token_counts.add_prompt(tokens);
  }

  RequestId id;
  SamplingParams sampling;
  std::string cache_salt;
  std::uint64_t seed;
  std::vector<TokenId> tokens;  // the prompt, then the answer
  std::int64_t prompt_tokens;
  // Tokens whose keys and values are in the cache. After a preemption it is 0, and the answer so
  // far is computed again like a prompt: no token is lost.
  std::int64_t computed_tokens = 0;
  // Tokens before this are in pages that others computed. Where that is the whole text, the last
  // token counts as not computed, since its logits are wanted, and is not written again.
  std::int64_t adopted_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompt, that were found in the cache
  bool was_preempted = false;
  std::vector<PageKey> page_keys;         // of the text's first full pages, as far as was needed
  std::int64_t shared_pages = 0;          // of these, that others can find
  std::int64_t prompt_logprobs_told = 0;  // rows of the prompt whose log-probabilities went out
  RequestTimes times;
  BlockTable blocks;
  TokenCounts token_counts;
  Detokenizer detokenizer;
  StopFilter stop_filter;

  // Gives all pages back; the text is read again from its start, or from what the cache still has.
  void start_over() {
    blocks.clear();
    computed_tokens = 0;
    adopted_tokens = 0;
    shared_pages = 0;
    if (!was_preempted) cached_tokens = 0;
  }

  std::int64_t length() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t generated() const { return length() - prompt_tokens; }
  std::int64_t pending() const { return length() - computed_tokens; }
  bool decodes() const { return pending() == 1 && generated() > 0; }
  // Whether rows computed now still owe the prompt's log-probabilities.
  bool owes_prompt_logprobs() const {
    return sampling.prompt_logprobs >= 0 && prompt_logprobs_told + 1 < prompt_tokens;
  }
};

}  // namespace octet
