#include "server/http_head.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/printable.h"

namespace octet {

namespace {

constexpr std::size_t most_target_bytes = 4096;
constexpr std::size_t most_fields = 100;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::size_t count_of(const HttpHead& head, std::string_view name) {
  return static_cast<std::size_t>(
      std::count_if(head.fields.begin(), head.fields.end(),
                    [&](const auto& field) { return same_word(field.first, name); }));
}

bool is_visible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
}

}  // namespace

std::string_view field_of(const HttpHead& head, std::string_view name) {
  for (const auto& [field, value] : head.fields) {
    if (same_word(field, name)) return value;
  }
  return {};
}

std::optional<HeadFault> find_head_fault(const HttpHead& head) {
  if (head.version != 10 && head.version != 11) {
    return HeadFault{505, "the request's HTTP version is not 1.0 or 1.1"};
  }
  if (head.target.size() > most_target_bytes) {
    return HeadFault{
        414, fmt::format("the request's target is longer than {} bytes", most_target_bytes)};
  }
  const bool is_path = !head.target.empty() && head.target.front() == '/';
  if (!is_path && !(head.method == "OPTIONS" && head.target == "*")) {
    return HeadFault{400, "the request's target is no path that starts with /"};
  }
  if (!is_visible(head.target)) {
    return HeadFault{400, "the request's target holds a byte that must be percent-encoded"};
  }
  if (head.fields.size() > most_fields) {
    return HeadFault{431, fmt::format("the request has more than {} header fields", most_fields)};
  }
  for (const auto& [name, value] : head.fields) {
    // A line folded onto the next is one value to some readers and two lines to others.
    if (value.find_first_of("\r\n") != std::string::npos || value.find('\0') != std::string::npos) {
      return HeadFault{400, fmt::format("the header field {} holds a line end or a null byte",
                                        printable(name, 40))};
    }
  }
  const std::size_t lengths = count_of(head, "content-length");
  const std::size_t encodings = count_of(head, "transfer-encoding");
  if (lengths > 1) return HeadFault{400, "Content-Length is given twice, expected once"};
  if (lengths > 0) {
    const std::string_view length = field_of(head, "content-length");
    if (length.empty() ||
        !std::all_of(length.begin(), length.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      return HeadFault{400, "Content-Length is no decimal number"};
    }
  }
  if (encodings > 0 && lengths > 0) {
    return HeadFault{400, "Content-Length and Transfer-Encoding are both given, expected one"};
  }
  if (encodings > 1) return HeadFault{400, "Transfer-Encoding is given twice, expected once"};
  if (encodings > 0 && head.version == 10) {
    return HeadFault{400, "Transfer-Encoding is given with HTTP/1.0, which has none"};
  }
  if (encodings > 0 && !same_word(field_of(head, "transfer-encoding"), "chunked")) {
    return HeadFault{501, "Transfer-Encoding is not chunked, the only one that is read here"};
  }
  const std::size_t hosts = count_of(head, "host");
  if (hosts > 1) return HeadFault{400, "Host is given twice, expected once"};
  if (hosts == 0 && head.version == 11) return HeadFault{400, "Host is missing"};
  const std::string_view expected = field_of(head, "expect");
  if (!expected.empty() && !same_word(expected, "100-continue")) {
    return HeadFault{417, "Expect is not 100-continue, the only expectation that is met here"};
  }
  return std::nullopt;
}

}  // namespace octet
