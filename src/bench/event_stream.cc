#include "bench/event_stream.h"

namespace octet {

void EventStream::push(std::string_view bytes,
                       const std::function<void(std::string_view)>& on_data) {
  pending_.append(bytes);
  std::size_t start = 0;
  // An event is its lines up to an empty one; the servers of this field send one data line each.
  for (std::size_t end; (end = pending_.find('\n', start)) != std::string::npos; start = end + 1) {
    std::string_view line(pending_.data() + start, end - start);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.starts_with("data:")) continue;
    line.remove_prefix(5);
    if (line.starts_with(' ')) line.remove_prefix(1);
    on_data(line);
  }
  pending_.erase(0, start);
}

}  // namespace octet
