#include "cli/terminal_text.h"

#include <algorithm>

#include "core/printable.h"

namespace octet {

std::string terminal_text(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of("\n\t"), text.size());
    result += single_line(text.substr(0, end));
    if (end < text.size()) result += text[end];
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

}  // namespace octet
