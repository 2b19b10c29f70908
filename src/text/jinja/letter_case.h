// Upper and lower case as Python's str has them, for every script.
#pragma once

#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace octet::jinja {

// `titled` is str.title(), `titled_words` the filter `title`, which splits words elsewhere;
// `folded` is str.casefold().
enum class LetterCase { upper, lower, capitalized, titled, titled_words, swapped, folded };

// A character may become several ("ß" in upper case), and a capital sigma that ends a word becomes
// the final one. Each keeps its mark.
Value change_case(Budget& budget, const MarkedText& text, LetterCase letter_case);

// str.isupper(), str.islower(), str.istitle(): whether there is a letter with case, and none that
// is out of place. `letter_case`: upper, lower or titled.
bool has_case(Budget& budget, const MarkedText& text, LetterCase letter_case);

}  // namespace octet::jinja
