// The texts of the needle evaluation: sentences of no account with a few numbers to find.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace octet {

// "The code of box 417 is", asked after the text that says it is 902.
struct NeedleQuestion {
  std::size_t depth = 0;          // index of the depth at which its needle lies
  std::vector<TokenId> question;  // at least one token
  std::vector<TokenId> answer;    // at least one token
};

struct NeedleText {
  std::vector<TokenId> haystack;
  std::vector<NeedleQuestion> questions;  // `samples` of each depth, depth by depth
};

struct NeedleTextOptions {
  std::int64_t length = 0;         // of haystack, question and answer, at most
  std::span<const double> depths;  // where needles begin: 0 at the start, 100 at the end
  std::int64_t samples = 1;        // needles at each depth, each with a question
  unsigned seed = 1;
};

// One haystack with all the needles, so that each answer has the others to be mistaken for. Boxes
// and codes are different numbers of three digits. The haystack fills whole pages of the cache. The
// same options give the same text. Throws Error{bad_input} that names --lengths, or --depths and
// --samples, where the needles find no room or no numbers.
NeedleText make_needle_text(const Tokenizer& tokenizer, const NeedleTextOptions& options);

}  // namespace octet
