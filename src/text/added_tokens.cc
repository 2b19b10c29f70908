#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "text/unicode.h"

namespace octet {
namespace {

std::size_t begin_of_character_before(std::string_view text, std::size_t end) {
  do {
    --end;
  } while (end > 0 && !is_utf8_lead(text[end]));
  return end;
}

bool word_ends_at(std::string_view text, std::size_t end) {
  return end > 0 &&
         is_word_character(character_at(text, begin_of_character_before(text, end)).code_point);
}

bool word_begins_at(std::string_view text, std::size_t begin) {
  return begin < text.size() && is_word_character(character_at(text, begin).code_point);
}

bool is_space(char32_t code_point) {
  return character_class(code_point) == CharacterClass::whitespace;
}

}  // namespace

std::size_t begin_of_space_before(std::string_view valid_text, std::size_t end) {
  while (end > 0) {
    const std::size_t before = begin_of_character_before(valid_text, end);
    if (!is_space(character_at(valid_text, before).code_point)) break;
    end = before;
  }
  return end;
}

std::size_t end_of_space_after(std::string_view valid_text, std::size_t begin) {
  while (begin < valid_text.size()) {
    const Character character = character_at(valid_text, begin);
    if (!is_space(character.code_point)) break;
    begin += character.bytes;
  }
  return begin;
}

AddedTokenSplitter::AddedTokenSplitter(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)) {
  std::vector<SpecialTokenMatcher::Token> texts;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    texts.push_back({tokens_[i].text, static_cast<TokenId>(i)});
  }
  matcher_ = SpecialTokenMatcher(std::move(texts));
}

std::optional<AddedTokenSplitter::Found> AddedTokenSplitter::find(std::string_view valid_text,
                                                                  std::size_t begin) const {
  while (const auto match = matcher_.find(valid_text, begin)) {
    const AddedToken& token = tokens_[static_cast<std::size_t>(match->id)];
    if (!token.single_word ||
        (!word_ends_at(valid_text, match->begin) && !word_begins_at(valid_text, match->end))) {
      return Found{*match, &token};
    }
    begin = match->end;  // the package goes on behind what it discards, too
  }
  return std::nullopt;
}

std::vector<AddedTokenSplitter::Part> AddedTokenSplitter::split(std::string_view valid_text) const {
  std::vector<Part> parts;
  std::size_t done = 0;
  std::size_t search = 0;
  while (const auto found = find(valid_text, search)) {
    std::size_t begin = found->match.begin;
    std::size_t end = found->match.end;
    search = end;
    if (found->token->lstrip) begin = std::max(begin_of_space_before(valid_text, begin), done);
    if (found->token->rstrip) end = end_of_space_after(valid_text, end);
    if (done < begin) parts.push_back({done, begin, -1});
    parts.push_back({begin, end, found->token->id});
    done = end;
  }
  if (done < valid_text.size()) parts.push_back({done, valid_text.size(), -1});
  return parts;
}

}  // namespace octet
