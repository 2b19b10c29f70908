#include "text/special_token_matcher.h"

#include <algorithm>
#include <utility>

namespace octet {

SpecialTokenMatcher::SpecialTokenMatcher(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(),
            [](const Token& a, const Token& b) { return a.text < b.text; });
  for (const Token& token : tokens_) {
    begins_token_[static_cast<unsigned char>(token.text.front())] = true;
  }
}

std::optional<SpecialTokenMatcher::Match> SpecialTokenMatcher::find(std::string_view text,
                                                                    std::size_t begin) const {
  for (; begin < text.size(); ++begin) {
    if (!begins_token_[static_cast<unsigned char>(text[begin])]) continue;
    if (const auto match = match_at(text, begin)) return match;
  }
  return std::nullopt;
}

// Narrows the sorted tokens down to those that share one more byte with the text, byte by byte.
std::optional<SpecialTokenMatcher::Match> SpecialTokenMatcher::match_at(std::string_view text,
                                                                        std::size_t begin) const {
  std::optional<Match> longest;
  auto low = tokens_.begin();
  auto high = tokens_.end();
  for (std::size_t length = 0; low != high; ++length) {
    if (low->text.size() == length) {
      longest = Match{begin, begin + length, low->id};
      ++low;
    }
    if (begin + length == text.size()) break;
    const auto byte_of = [&](const Token& token) {
      return static_cast<unsigned char>(token.text[length]);
    };
    const auto byte = static_cast<unsigned char>(text[begin + length]);
    low = std::partition_point(low, high, [&](const Token& t) { return byte_of(t) < byte; });
    high = std::partition_point(low, high, [&](const Token& t) { return byte_of(t) == byte; });
  }
  return longest;
}

}  // namespace octet
