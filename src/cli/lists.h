// Flags whose values are lists.
#pragma once

#include <charconv>
#include <string>
#include <system_error>
#include <vector>

#include "core/error.h"
#include "core/printable.h"

namespace octet {

// What stands between the commas; at least one part, which may be empty.
std::vector<std::string> split_list(const std::string& text);

// Numbers of [least, most], separated by commas. Throws Error{bad_input} naming the flag.
template <typename T>
std::vector<T> parse_numbers(const char* flag, const std::string& text, T least, T most) {
  std::vector<T> numbers;
  for (const std::string& part : split_list(text)) {
    T number{};
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc() || stop != part.data() + part.size() || !(number >= least) ||
        !(number <= most)) {
      throw_bad_input("{} {}: expected numbers from {} to {}, separated by commas", flag,
                      printable(text), least, most);
    }
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace octet
