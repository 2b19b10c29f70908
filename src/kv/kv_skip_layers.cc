#include "kv/kv_skip_layers.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/ranges.h>

#include "core/error.h"
#include "core/printable.h"

namespace octet {

namespace {

constexpr std::string_view flag = skip_layers_flag;
constexpr std::string_view window_word = "sliding_window";
constexpr std::string_view blanks = " \t\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t start = text.find_first_not_of(blanks);
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(blanks) + 1 - start);
}

// The words of one comma's worth of an item, which are separated by blanks; there must be one.
void append_words(std::string_view part, std::string_view item,
                  std::vector<std::string_view>* words) {
  std::string_view rest = trimmed(part);
  if (rest.empty()) {
    throw_bad_input("{} {}: holds an empty word; expected layer indices or {}", flag,
                    printable(item), window_word);
  }
  while (!rest.empty()) {
    const std::size_t stop = std::min(rest.find_first_of(blanks), rest.size());
    words->push_back(rest.substr(0, stop));
    rest = trimmed(rest.substr(stop));
  }
}

std::vector<std::string_view> words_of(const std::vector<std::string>& items) {
  std::vector<std::string_view> words;
  for (const std::string& item : items) {
    std::string_view rest = item;
    for (std::size_t comma = 0; comma != std::string_view::npos;) {
      comma = rest.find(',');
      append_words(rest.substr(0, comma), item, &words);
      if (comma != std::string_view::npos) rest.remove_prefix(comma + 1);
    }
  }
  return words;
}

// An index as people write it: decimal digits, no sign, no leading zero.
std::optional<std::size_t> parse_index(std::string_view word) {
  std::size_t index = 0;
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), index);
  const bool plain = word.size() == 1 || word.front() != '0';
  if (error != std::errc() || stop != word.data() + word.size() || !plain) return std::nullopt;
  return index;
}

// "0 to 17", or "3, 7 to 9" where some layers are none of attention; and the word, where it holds.
std::string valid_words(std::span<const KvLayerGeometry> geometry) {
  std::vector<std::string> ranges;
  for (std::size_t first = 0; first < geometry.size(); ++first) {
    if (geometry[first].kv_heads == 0) continue;
    std::size_t last = first;
    while (last + 1 < geometry.size() && geometry[last + 1].kv_heads > 0) ++last;
    ranges.push_back(first == last ? std::to_string(first) : fmt::format("{} to {}", first, last));
    first = last;
  }
  const bool windowed = std::any_of(geometry.begin(), geometry.end(),
                                    [](const KvLayerGeometry& layer) { return layer.window > 0; });
  return fmt::format("expected indices of attention layers, {}{}", fmt::join(ranges, ", "),
                     windowed ? fmt::format(", or {}", window_word) : std::string());
}

}  // namespace

std::vector<bool> skipped_layers(const std::vector<std::string>& items,
                                 std::span<const KvLayerGeometry> geometry) {
  std::vector<bool> skipped(geometry.size(), false);
  for (const std::string_view word : words_of(items)) {
    if (word == window_word) {
      bool any = false;
      for (std::size_t layer = 0; layer < geometry.size(); ++layer) {
        if (geometry[layer].window == 0) continue;
        skipped[layer] = any = true;
      }
      if (!any) {
        throw_bad_input("{} {}: no layer of the model has a sliding window; {}", flag, word,
                        valid_words(geometry));
      }
      continue;
    }
    const std::optional<std::size_t> index = parse_index(word);
    if (!index) throw_bad_input("{} {}: {}", flag, printable(word), valid_words(geometry));
    if (*index >= geometry.size()) {
      throw_bad_input("{} {}: the model has {} layers; {}", flag, word, geometry.size(),
                      valid_words(geometry));
    }
    if (geometry[*index].kv_heads == 0) {
      throw_bad_input("{} {}: that layer has no attention; {}", flag, word, valid_words(geometry));
    }
    skipped[*index] = true;
  }
  return skipped;
}

void check_skip_layers(const std::vector<std::string>& items) {
  for (const std::string_view word : words_of(items)) {
    if (word != window_word && !parse_index(word)) {
      throw_bad_input("{} {}: expected layer indices or {}", flag, printable(word), window_word);
    }
  }
}

}  // namespace octet
