// How far a cache policy moves a model's predictions: KL divergence, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "text/tokenizer.h"

namespace octet {

struct KlDepth {  // positions [first, last) of the text
  std::int64_t first = 0;
  std::int64_t last = 0;
  double mean = 0;
  double top1_agreement = 0;
};

struct KlReport {
  std::int64_t tokens = 0;
  double mean = 0;  // nats
  double median = 0;
  double p99 = 0;
  double top1_agreement = 0;  // share of positions whose most likely token is the same
  double reference_perplexity = 0;
  double candidate_perplexity = 0;
  std::vector<KlDepth> by_depth;  // eight equal parts
};

// Both cores' logits of a chunk are held at once: 64 rows of 150,000 are 38 MB each.
inline constexpr std::int64_t most_kl_chunk_tokens = 64;

// Teacher-forced: both cores read `tokens`, and at each position p the divergence
// sum_v P_reference(v) (log P_reference(v) - log P_candidate(v)) is taken in double precision, over
// the whole vocabulary. Perplexity is over the positions whose next token is in the text.
// `progress` is called with the tokens done. The text is read in chunks of `chunk` tokens: 1 goes
// the way of decoding. The cores may share one model. Throws Error{internal} where logits are NaN
// or infinite.
KlReport evaluate_kl(EngineCore& reference, EngineCore& candidate, std::span<const TokenId> tokens,
                     const std::function<void(std::int64_t)>& progress,
                     std::int64_t chunk = most_kl_chunk_tokens);

}  // namespace octet
