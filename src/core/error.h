// The one exception type of octet.
//
// Nothing below src/cli and src/server exits, prints or aborts: it throws Error, and the edge turns
// it into one sentence and an exit status or an HTTP status.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace octet {

enum class ErrorKind {
  bad_input,      // a file, flag, request or text breaks its rules; exit status 2, HTTP 400
  unsupported,    // a valid input that this build or device cannot serve; exit status 2, HTTP 400
  out_of_memory,  // the machine or a configured limit has no room; exit status 1, HTTP 503
  device,         // an accelerator call failed; exit status 1, HTTP 500
  internal,       // octet broke its own rule; exit status 1, HTTP 500
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// The message is one sentence that names the file, tensor, layer, flag or field and what was
// expected of it.
template <typename... Args>
[[noreturn]] void throw_error(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void throw_bad_input(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::bad_input, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void throw_unsupported(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::unsupported, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace octet
