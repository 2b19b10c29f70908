#include "bench/serve_prompt.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace octet {

namespace {

constexpr std::array<const char*, 64> words = {
    "the",   "of",    "and",   "to",    "in",    "is",   "that", "for",   "it",    "as",
    "was",   "with",  "be",    "by",    "on",    "not",  "he",   "this",  "are",   "or",
    "his",   "from",  "at",    "which", "but",   "have", "an",   "had",   "they",  "you",
    "were",  "their", "one",   "all",   "we",    "can",  "her",  "has",   "there", "been",
    "if",    "more",  "when",  "will",  "would", "who",  "so",   "no",    "time",  "people",
    "water", "world", "house", "day",   "life",  "hand", "part", "place", "work",  "point",
    "home",  "night", "light", "story"};

}  // namespace

std::string random_prompt(std::mt19937_64& random, std::int64_t tokens) {
  std::string text;
  for (std::int64_t i = 0; i < tokens; ++i) {
    if (i > 0) text += ' ';
    text += words[random() % words.size()];
  }
  return text;
}

std::int64_t random_length(std::mt19937_64& random, std::int64_t length, double ratio) {
  const auto low = static_cast<std::int64_t>(std::floor(static_cast<double>(length) * (1 - ratio)));
  const auto high = static_cast<std::int64_t>(std::ceil(static_cast<double>(length) * (1 + ratio)));
  // Not a distribution of the library: each has its own draws, and a seed means the same load.
  const auto span = static_cast<std::uint64_t>(std::max<std::int64_t>(high - low, 0)) + 1;
  return std::max<std::int64_t>(1, low + static_cast<std::int64_t>(random() % span));
}

}  // namespace octet
