#include "eval/needle_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "kv/kv_layout.h"

namespace octet {

namespace {

constexpr std::array<std::string_view, 12> filler = {
    "The river runs past the old mill and into the valley.",
    "Nobody had opened the window since the spring.",
    "A train left the station a few minutes late.",
    "They walked along the shore until it grew dark.",
    "The baker sells bread and cakes in the morning.",
    "Rain fell on the roofs of the little town.",
    "Her brother wrote a long letter about the sea.",
    "In winter the lake is covered with ice.",
    "The children played in the garden behind the school.",
    "Two cats slept on the warm stones by the wall.",
    "He put the book back on the shelf and went out.",
    "The market was full of people and noise.",
};
constexpr int first_number = 100;  // of three digits
constexpr std::size_t numbers = 900;

// What goes on a text: most tokenizers have the space in the word that follows it; those that put
// one before every text need none.
std::vector<TokenId> encode_sentence(const Tokenizer& tokenizer, std::string_view sentence) {
  const std::string text =
      tokenizer.strips_leading_space() ? std::string(sentence) : fmt::format(" {}", sentence);
  return tokenizer.encode(text, SpecialText::literal);
}

struct Needle {
  std::vector<TokenId> sentence;
  std::int64_t place = 0;  // in the haystack, at which or soon after which it begins
};

// The part that question and full sentence share is the question, so that the answer is just what a
// model would have to say next, however the two are cut into tokens.
NeedleQuestion make_question(const Tokenizer& tokenizer, int box, int code, std::size_t depth) {
  const std::string asked = fmt::format("The code of box {} is", box);
  const std::vector<TokenId> full = encode_sentence(tokenizer, fmt::format("{} {}", asked, code));
  const std::vector<TokenId> start = encode_sentence(tokenizer, asked);
  const auto [end, unused] = std::mismatch(full.begin(), full.end(), start.begin(), start.end());
  if (end == full.begin() || end == full.end()) {
    throw_bad_input("the model's tokenizer cannot tell \"{} {}\" from \"{}\"", asked, code, asked);
  }
  return {depth, {full.begin(), end}, {end, full.end()}};
}

void append(std::vector<TokenId>* tokens, const std::vector<TokenId>& more) {
  tokens->insert(tokens->end(), more.begin(), more.end());
}

}  // namespace

NeedleText make_needle_text(const Tokenizer& tokenizer, const NeedleTextOptions& options) {
  const auto samples = static_cast<std::size_t>(options.samples);
  const std::size_t count = options.depths.size() * samples;
  if (count == 0 || samples > numbers || 2 * count > numbers) {
    throw_bad_input(
        "--depths and --samples: {} depths with {} needles each; expected 1 to {} in all",
        options.depths.size(), options.samples, numbers / 2);
  }
  std::mt19937 random(options.seed);
  std::vector<int> drawn(numbers);
  std::iota(drawn.begin(), drawn.end(), first_number);
  for (std::size_t i = 0; i < 2 * count; ++i) {
    std::swap(drawn[i], drawn[i + random() % (numbers - i)]);
  }

  NeedleText text;
  std::vector<Needle> needles;
  std::int64_t needle_tokens = 0;
  std::size_t longest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const int box = drawn[2 * i];
    const int code = drawn[2 * i + 1];
    text.questions.push_back(make_question(tokenizer, box, code, i / samples));
    longest =
        std::max(longest, text.questions[i].question.size() + text.questions[i].answer.size());
    needles.push_back(
        {encode_sentence(tokenizer, fmt::format("The code of box {} is {}.", box, code)), 0});
    needle_tokens += static_cast<std::int64_t>(needles[i].sentence.size());
  }
  if (tokenizer.adds_beginning_of_text() && tokenizer.beginning_of_text()) {
    text.haystack.push_back(*tokenizer.beginning_of_text());
  }
  const auto start = static_cast<std::int64_t>(text.haystack.size());
  const std::int64_t room = options.length - static_cast<std::int64_t>(longest);
  const std::int64_t size = std::max<std::int64_t>(room, 0) / page_tokens * page_tokens;
  if (size < start + needle_tokens) {
    throw_bad_input(
        "--lengths {}: {} needles with their question take {} tokens; expected at least {}",
        options.length, count, needle_tokens + static_cast<std::int64_t>(longest),
        start + needle_tokens + static_cast<std::int64_t>(longest) + page_tokens - 1);
  }

  // Needles of one depth follow one another; where depths are closer than that, all move back.
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return options.depths[a / samples] < options.depths[b / samples];
  });
  std::int64_t before = start;
  for (const std::size_t i : order) {
    const double share = options.depths[i / samples] / 100;
    const auto free_tokens = static_cast<double>(size - start - needle_tokens);
    needles[i].place = before + std::llround(share * free_tokens);
    before += static_cast<std::int64_t>(needles[i].sentence.size());
  }
  std::vector<std::vector<TokenId>> sentences;
  for (const std::string_view sentence : filler) {
    sentences.push_back(encode_sentence(tokenizer, sentence));
  }
  for (const std::size_t i : order) {
    // The last sentence before a needle is cut where it would push the needle back.
    while (static_cast<std::int64_t>(text.haystack.size()) < needles[i].place) {
      append(&text.haystack, sentences[random() % sentences.size()]);
      if (static_cast<std::int64_t>(text.haystack.size()) > needles[i].place) {
        text.haystack.resize(static_cast<std::size_t>(needles[i].place));
      }
    }
    append(&text.haystack, needles[i].sentence);
  }
  while (static_cast<std::int64_t>(text.haystack.size()) < size) {
    append(&text.haystack, sentences[random() % sentences.size()]);
  }
  text.haystack.resize(static_cast<std::size_t>(size));
  return text;
}

}  // namespace octet
