#include "cli/lists.h"

namespace octet {

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t first = 0;
  for (;;) {
    const std::size_t comma = text.find(',', first);
    parts.push_back(text.substr(first, comma - first));
    if (comma == std::string::npos) return parts;
    first = comma + 1;
  }
}

}  // namespace octet
