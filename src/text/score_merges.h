// The merges that a SentencePiece vocabulary implies.
#pragma once

#include <span>
#include <vector>

#include "text/merge_table.h"
#include "text/vocabulary.h"

namespace octet {

// Two tokens whose texts make up a third merge into it; the third with the highest score goes first
// and, of one score, that with the longer left part. That is what transformers' generate_merges()
// writes into tokenizer.json; SentencePiece itself takes the leftmost of one score, which differs
// only where one token can be made in two ways that overlap. Special tokens are never made.
// User-defined tokens score 0, as SentencePiece's own files have it (GGUF's say -1000).
// `scores` has one finite number for each token.
std::vector<MergeTable::Merge> merges_of_scores(const Vocabulary& vocabulary,
                                                std::span<const double> scores);

}  // namespace octet
