#include "text/merge_table.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "core/error.h"

namespace octet {
namespace {

constexpr std::uint32_t no_rank = std::numeric_limits<std::uint32_t>::max();

std::uint64_t queue_entry(std::uint32_t rank, std::uint32_t position) {
  return std::uint64_t{rank} << 32 | position;  // orders by rank, then from left to right
}

}  // namespace

MergeTable::MergeTable(TokenId vocabulary_size, std::span<const Merge> merges) {
  first_entry_.assign(static_cast<std::size_t>(vocabulary_size) + 1, 0);
  for (const Merge& merge : merges) ++first_entry_[static_cast<std::size_t>(merge.left) + 1];
  for (std::size_t i = 1; i < first_entry_.size(); ++i) first_entry_[i] += first_entry_[i - 1];

  entries_.resize(merges.size());
  results_.reserve(merges.size());
  std::vector<std::uint32_t> next_free = first_entry_;
  for (std::uint32_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    entries_[next_free[static_cast<std::size_t>(merge.left)]++] = {merge.right, rank};
    results_.push_back(merge.result);
  }
  for (std::size_t left = 0; left + 1 < first_entry_.size(); ++left) {
    std::stable_sort(entries_.begin() + first_entry_[left],
                     entries_.begin() + first_entry_[left + 1],
                     [](const Entry& a, const Entry& b) { return a.right < b.right; });
  }
}

std::uint32_t MergeTable::find_rank(TokenId left, TokenId right) const {
  const auto begin = entries_.begin() + first_entry_[static_cast<std::size_t>(left)];
  const auto end = entries_.begin() + first_entry_[static_cast<std::size_t>(left) + 1];
  const auto after = std::upper_bound(
      begin, end, right, [](TokenId token, const Entry& entry) { return token < entry.right; });
  return after != begin && (after - 1)->right == right ? (after - 1)->rank : no_rank;
}

void MergeTable::apply(std::vector<TokenId>& tokens, Workspace& workspace) const {
  if (tokens.size() < 2) return;
  if (tokens.size() >= no_rank) throw_bad_input("a word of the text is longer than 4 GiB");
  const auto count = static_cast<std::uint32_t>(tokens.size());
  auto& symbols = workspace.symbols;  // a linked list; the symbol before the first is `count`
  auto& queue = workspace.queue;      // a heap; holds stale entries too
  symbols.resize(count);
  queue.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t rank = i + 1 < count ? find_rank(tokens[i], tokens[i + 1]) : no_rank;
    symbols[i] = {i == 0 ? count : i - 1, i + 1, rank};
    if (rank != no_rank) queue.push_back(queue_entry(rank, i));
  }
  std::make_heap(queue.begin(), queue.end(), std::greater<>());

  const auto rank_again = [&](std::uint32_t position) {
    const std::uint32_t next = symbols[position].next;
    const std::uint32_t rank = next < count ? find_rank(tokens[position], tokens[next]) : no_rank;
    symbols[position].rank = rank;
    if (rank == no_rank) return;
    queue.push_back(queue_entry(rank, position));
    std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const auto rank = static_cast<std::uint32_t>(queue.back() >> 32);
    const auto position = static_cast<std::uint32_t>(queue.back());
    queue.pop_back();
    if (symbols[position].rank != rank) continue;  // this symbol or its neighbour has changed
    const std::uint32_t merged = symbols[position].next;
    const std::uint32_t next = symbols[merged].next;
    tokens[position] = results_[rank];
    symbols[merged].rank = no_rank;
    symbols[position].next = next;
    if (next < count) symbols[next].previous = position;
    rank_again(position);
    if (symbols[position].previous < count) rank_again(symbols[position].previous);
  }

  std::size_t kept = 0;
  for (std::uint32_t i = 0; i < count; i = symbols[i].next) tokens[kept++] = tokens[i];
  tokens.resize(kept);
}

}  // namespace octet
