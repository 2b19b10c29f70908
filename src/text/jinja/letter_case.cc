#include "text/jinja/letter_case.h"

#include <optional>
#include <string>

#include "text/jinja/unicode.h"

namespace octet::jinja {
namespace {

constexpr char32_t capital_sigma = 0x3A3;
constexpr char32_t final_sigma = 0x3C2;

bool is_cased(char32_t character) {
  return has_flag(character, CharacterFlag::lower) || has_flag(character, CharacterFlag::upper) ||
         has_flag(character, CharacterFlag::title);
}

// Whether the first character from `offset` on, in steps of `next`, that is not case-ignorable has
// case. `next` gives the offset of a neighbour, or nothing at the end.
template <typename Next>
bool meets_cased(std::string_view text, std::size_t offset, Next&& next) {
  while (const std::optional<std::size_t> neighbour = next(offset)) {
    offset = *neighbour;
    const char32_t character = decode_at(text, offset);
    if (!has_flag(character, CharacterFlag::case_ignorable)) return is_cased(character);
  }
  return false;
}

// Letters before a sigma and none after it (Unicode's Final_Sigma). A text is walked over at most
// twice for all its sigmas, since a sigma ends the walk of the next.
bool ends_word(std::string_view text, std::size_t sigma) {
  const bool follows = meets_cased(text, sigma, [text](std::size_t offset) {
    return offset == 0 ? std::nullopt : std::optional(previous_character(text, offset));
  });
  return follows && !meets_cased(text, sigma, [text](std::size_t offset) {
           const std::size_t after = offset + character_bytes(text[offset]);
           return after == text.size() ? std::nullopt : std::optional(after);
         });
}

// Writes texts with some characters replaced, each with its own mark.
class CaseWriter {
 public:
  CaseWriter(Budget& budget, const MarkedText& text) : out_(budget), text_(text) {}

  // The character at `offset`; `context` is the part of the text that a sigma looks at.
  void add(std::size_t offset, CaseMapping mapping, std::size_t context_begin,
           std::size_t context_end) {
    const std::string& bytes = text_.bytes();
    const char32_t character = decode_at(bytes, offset);
    mapped_.clear();
    if (character == capital_sigma && mapping == CaseMapping::lower) {
      const std::string_view context =
          std::string_view(bytes).substr(context_begin, context_end - context_begin);
      if (ends_word(context, offset - context_begin)) append_utf8(final_sigma, mapped_);
    }
    if (mapped_.empty() && !append_mapped(character, mapping, mapped_)) return;
    out_.append_slice(text_, copied_, offset);
    out_.append(mapped_, text_.is_literal_at(offset));
    copied_ = offset + character_bytes(bytes[offset]);
  }

  void add_all(std::size_t begin, std::size_t end, CaseMapping mapping) {
    for (std::size_t i = begin; i < end; i += character_bytes(text_.bytes()[i])) {
      add(i, mapping, begin, end);
    }
  }

  Value finish() {
    out_.append_slice(text_, copied_, text_.size());
    return out_.finish();
  }

 private:
  TextBuilder out_;
  const MarkedText& text_;
  std::string mapped_;
  std::size_t copied_ = 0;
};

// Where a character of `text` makes the next one a word's first, for the filter `title`.
bool separates_words(char32_t character) {
  return is_python_space(character) || character == '-' || character == '(' || character == '{' ||
         character == '[' || character == '<';
}

// Jinja's filter: words, and what is between them, begin with an upper case letter (not a title's)
// and go on in lower case.
void add_titled_words(CaseWriter& out, const std::string& bytes) {
  for (std::size_t begin = 0; begin < bytes.size();) {
    const bool separates = separates_words(decode_at(bytes, begin));
    std::size_t end = begin;
    while (end < bytes.size() && separates_words(decode_at(bytes, end)) == separates) {
      end += character_bytes(bytes[end]);
    }
    const std::size_t second = begin + character_bytes(bytes[begin]);
    out.add_all(begin, second, CaseMapping::upper);
    out.add_all(second, end, CaseMapping::lower);
    begin = end;
  }
}

}  // namespace

Value change_case(Budget& budget, const MarkedText& text, LetterCase letter_case) {
  const std::string& bytes = text.bytes();
  budget.work(table_look_up_work * bytes.size());
  CaseWriter out(budget, text);
  if (letter_case == LetterCase::titled_words) {
    add_titled_words(out, bytes);
    return out.finish();
  }
  bool is_first = true;
  bool follows_cased = false;
  for (std::size_t i = 0; i < bytes.size(); i += character_bytes(bytes[i])) {
    const char32_t character = decode_at(bytes, i);
    CaseMapping mapping = CaseMapping::lower;
    switch (letter_case) {
      case LetterCase::upper:
        mapping = CaseMapping::upper;
        break;
      case LetterCase::capitalized:
        if (is_first) mapping = CaseMapping::title;
        break;
      case LetterCase::titled:
        if (!follows_cased) mapping = CaseMapping::title;
        follows_cased = is_cased(character);
        break;
      case LetterCase::swapped:
        if (!has_flag(character, CharacterFlag::upper)) {
          if (!has_flag(character, CharacterFlag::lower)) continue;
          mapping = CaseMapping::upper;
        }
        break;
      case LetterCase::folded:
        mapping = CaseMapping::fold;
        break;
      case LetterCase::lower:
      case LetterCase::titled_words:
        break;
    }
    is_first = false;
    out.add(i, mapping, 0, bytes.size());
  }
  return out.finish();
}

bool has_case(Budget& budget, const MarkedText& text, LetterCase letter_case) {
  const std::string& bytes = text.bytes();
  budget.work(table_look_up_work * bytes.size());
  bool has_letter = false;
  bool follows_cased = false;
  for (std::size_t i = 0; i < bytes.size(); i += character_bytes(bytes[i])) {
    const char32_t character = decode_at(bytes, i);
    const bool is_lower = has_flag(character, CharacterFlag::lower);
    const bool is_upper = has_flag(character, CharacterFlag::upper);
    const bool is_title = has_flag(character, CharacterFlag::title);
    if (letter_case == LetterCase::titled) {
      if (follows_cased ? is_upper || is_title : is_lower) return false;
      follows_cased = is_lower || is_upper || is_title;
      has_letter = has_letter || follows_cased;
      continue;
    }
    if (is_title || (letter_case == LetterCase::upper ? is_lower : is_upper)) return false;
    has_letter = has_letter || is_lower || is_upper;
  }
  return has_letter;
}

}  // namespace octet::jinja
