#include "text/score_merges.h"

#include <algorithm>

#include "core/utf8.h"
#include "text/byte_pair_parts.h"

namespace octet {
namespace {

struct Candidate {
  double score;
  std::uint32_t left_characters;
  std::uint32_t right_characters;
  MergeTable::Merge merge;
};

bool goes_first(const Candidate& a, const Candidate& b) {
  if (a.score != b.score) return a.score > b.score;
  if (a.left_characters != b.left_characters) return a.left_characters > b.left_characters;
  if (a.right_characters != b.right_characters) return a.right_characters > b.right_characters;
  return a.merge.result < b.merge.result;
}

class Finder {
 public:
  explicit Finder(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  // The token that a part of a token's text is when merging meets it, or -1.
  TokenId find(std::string_view text) const {
    if (const auto id = vocabulary_.find(text)) return may_merge(*id) ? *id : -1;
    // A character that only its byte stands for (Gemma's tab).
    if (text.size() != 1) return -1;
    return vocabulary_.find(token_of_byte(static_cast<unsigned char>(text[0]))).value_or(-1);
  }

  bool may_merge(TokenId id) const {
    const TokenType type = vocabulary_.at(id).type;
    return type == TokenType::normal || type == TokenType::user_defined ||
           type == TokenType::unused;
  }

 private:
  const Vocabulary& vocabulary_;
};

}  // namespace

std::vector<MergeTable::Merge> merges_of_scores(const Vocabulary& vocabulary,
                                                std::span<const double> scores) {
  const Finder finder(vocabulary);
  std::vector<Candidate> candidates;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const Vocabulary::Token& token = vocabulary.at(id);
    if (!finder.may_merge(id)) continue;
    // A user-defined token that belongs to the protocol is made from no text.
    const bool user_defined = token.type == TokenType::user_defined;
    if (user_defined && !is_plain_added_text(token.text, false)) continue;
    const double score = user_defined ? 0 : scores[static_cast<std::size_t>(id)];
    const std::string_view text = token.text;
    std::uint32_t characters = 0;
    for (std::size_t i = 0; i < text.size(); ++i) characters += is_utf8_lead(text[i]) ? 1 : 0;
    std::uint32_t left_characters = 0;
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      if (!is_utf8_lead(text[cut])) continue;
      ++left_characters;
      const TokenId left = finder.find(text.substr(0, cut));
      if (left < 0) continue;
      const TokenId right = finder.find(text.substr(cut));
      if (right < 0) continue;
      candidates.push_back(
          {score, left_characters, characters - left_characters, {left, right, id}});
    }
  }
  std::sort(candidates.begin(), candidates.end(), goes_first);
  std::vector<MergeTable::Merge> merges;
  merges.reserve(candidates.size());
  for (const Candidate& candidate : candidates) merges.push_back(candidate.merge);
  return merges;
}

}  // namespace octet
