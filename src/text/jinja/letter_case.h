// Upper and lower case as Python's str has them, for every script.
#pragma once

#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace octet::jinja {

// `titled` is str.title(), `titled_words` the filter `title`, which splits words elsewhere;
// `folded` is str.casefold().
enum class LetterCase { upper, lower, capitalized, titled, titled_words, swapped, folded };

// What a byte costs, in bytes of other work, where each character is looked up in a table: some 20
// ns.
inline constexpr std::size_t table_look_up_work = 16;

// A character may become several ("ß" in upper case), and a capital sigma that ends a word becomes
// the final one. Each keeps its mark.
Value change_case(Budget& budget, const MarkedText& text, LetterCase letter_case);

// str.isupper(), str.islower(), str.istitle(): whether there is a letter with case, and none that
// is out of place. `letter_case`: upper, lower or titled.
bool has_case(Budget& budget, const MarkedText& text, LetterCase letter_case);

}  // namespace octet::jinja
