#include "text/jinja/marked_text.h"

#include <algorithm>

namespace octet::jinja {

void MarkedText::append(std::string_view bytes, bool literal) {
  const std::size_t begin = bytes_.size();
  bytes_.append(bytes);
  if (literal) mark(begin, bytes_.size());
}

void MarkedText::append_slice(const MarkedText& other, std::size_t begin, std::size_t end) {
  const std::size_t shift = bytes_.size();
  bytes_.append(other.bytes_, begin, end - begin);
  for (std::size_t i = other.first_range_ending_after(begin);
       i < other.literal_.size() && other.literal_[i].begin < end; ++i) {
    const std::size_t from = std::max<std::size_t>(other.literal_[i].begin, begin);
    const std::size_t to = std::min<std::size_t>(other.literal_[i].end, end);
    mark(from - begin + shift, to - begin + shift);
  }
}

MarkedText MarkedText::slice(std::size_t begin, std::size_t end) const {
  MarkedText result;
  result.append_slice(*this, begin, end);
  return result;
}

bool MarkedText::is_literal_at(std::size_t offset) const {
  const std::size_t i = first_range_ending_after(offset);
  return i < literal_.size() && literal_[i].begin <= offset;
}

std::size_t MarkedText::first_range_ending_after(std::size_t offset) const {
  const auto found =
      std::partition_point(literal_.begin(), literal_.end(),
                           [offset](const Range& range) { return range.end <= offset; });
  return static_cast<std::size_t>(found - literal_.begin());
}

void MarkedText::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!literal_.empty() && literal_.back().end == begin) {
    literal_.back().end = static_cast<std::uint32_t>(end);
  } else {
    literal_.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
  }
}

}  // namespace octet::jinja
