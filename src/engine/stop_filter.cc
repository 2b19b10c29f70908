#include "engine/stop_filter.h"

#include <algorithm>
#include <utility>

namespace octet {

std::string StopFilter::push(std::string_view piece) {
  if (stopped_) return {};
  held_ += piece;
  // The stop string that is complete first wins, the longest of those that end together: so it does
  // not matter how the text was cut into pieces, even where one stop string lies within another.
  std::size_t first = std::string::npos;
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t found = held_.find(stop);
    if (found == std::string::npos) continue;
    if (found + stop.size() < end || (found + stop.size() == end && found < first)) {
      first = found;
      end = found + stop.size();
    }
  }
  if (first != std::string::npos) {
    stopped_ = true;
    std::string before = held_.substr(0, first);
    held_.clear();
    return before;
  }
  // Hold back the longest tail that is the start of a stop string.
  std::size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t length = std::min(stop.size() - 1, held_.size()); length > keep; --length) {
      if (std::string_view(held_).substr(held_.size() - length) ==
          std::string_view(stop).substr(0, length)) {
        keep = length;
        break;
      }
    }
  }
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return certain;
}

std::string StopFilter::finish() { return std::exchange(held_, {}); }

}  // namespace octet
