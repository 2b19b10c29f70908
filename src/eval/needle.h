// Needles in a haystack: whether a model still finds one number in a long text, by depth and
// length.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/engine.h"
#include "text/tokenizer.h"

namespace octet {

struct NeedleOptions {
  std::vector<std::int64_t> lengths;  // tokens of text, question and answer, at most
  std::vector<double> depths;         // per cent of the text before the needle
  std::int64_t samples = 8;           // questions at each depth
  std::int64_t batch = 64;            // questions that are answered side by side
  std::int64_t chunk = 512;           // tokens of the text that a step computes
  unsigned seed = 1;
};

struct NeedleCell {
  std::int64_t length = 0;
  double depth = 0;
  std::int64_t asked = 0;
  std::int64_t right = 0;  // whose answer the model would give, drawing its most likely tokens
  double probability = 0;  // that it gives to right answers, the mean
};

// Cells length by length, depth by depth. A text is read once, in chunks, as a prompt is; the
// questions about it share its pages. A question's last token and its answer go the way of decode,
// `batch` of them in a step. `progress` is told the tokens done. Throws Error{bad_input} as
// make_needle_text() does, Error{out_of_memory} where the cache is too small.
std::vector<NeedleCell> evaluate_needle(EngineCore& core, const Tokenizer& tokenizer,
                                        const NeedleOptions& options,
                                        const std::function<void(std::int64_t)>& progress);

// Pages of each group of layers that it takes at most.
std::int64_t needle_pages(const NeedleOptions& options);

}  // namespace octet
